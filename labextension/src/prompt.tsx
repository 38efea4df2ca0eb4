/**
 * The row below the outputs of the cell that waits for input.
 *
 * At most one per notebook, as a session runs one cell at a time. The cursor goes there only in the page that
 * ran the cell; elsewhere nobody's typing is taken away.
 */
import { ReactWidget } from '@jupyterlab/apputils';
import type { Cell } from '@jupyterlab/cells';
import type { Notebook } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { PanelLayout } from '@lumino/widgets';
import * as React from 'react';

import type { Announcer } from './announce';
import { Answer, whoAsks } from './answer';
import { cellId } from './executor';
import type { Own } from './own';
import type { Blocked } from './model';
import type { Feed } from './sessions';

export class Prompts {
  constructor(
    private readonly _notebook: Notebook,
    private readonly _feed: Feed,
    private readonly _own: Own,
    private readonly _announcer: Announcer,
    private readonly _trans: TranslationBundle
  ) {
    _feed.changed.connect(this._update, this);
    _notebook.modelContentChanged.connect(this._update, this);
    this._update();
  }

  dispose(): void {
    this._feed.changed.disconnect(this._update, this);
    this._notebook.modelContentChanged.disconnect(this._update, this);
    this._row?.dispose();
  }

  private _update(): void {
    const blocked = this._feed.overview?.blocked ?? null;
    if (this._row && !this._row.isDisposed && blocked !== null && this._row.asks(blocked)) {
      return;
    }
    this._announce(blocked);
    const held = this._row?.node.contains(document.activeElement) ?? false;
    this._row?.dispose();
    this._row = null;
    if (held) {
      this._notebook.activate();
    }
    const cell = blocked && this._notebook.widgets.find(one => cellId(one) === blocked.cell_id);
    if (!blocked || !cell) {
      return;
    }
    const row = new PromptRow(this._notebook, cell, blocked, this._feed, this._own, this._trans);
    this._row = row;
    void cell.ready.then(() => {
      if (!row.isDisposed && !cell.isDisposed) {
        (cell.layout as PanelLayout).addWidget(row);
      }
    });
  }

  private _announce(blocked: Blocked | null): void {
    const key = `blocked ${this._feed.kernelId}`;
    if (blocked === null) {
      this._announcer.forget(key);
    } else {
      this._announcer.say(key, this._trans.__('A cell waits for input: %1', blocked.prompt));
    }
  }

  private _row: PromptRow | null = null;
}

class PromptRow extends ReactWidget {
  constructor(
    private readonly _notebook: Notebook,
    private readonly _cell: Cell,
    private readonly _blocked: Blocked,
    private readonly _feed: Feed,
    private readonly _own: Own,
    private readonly _trans: TranslationBundle
  ) {
    super();
    this.addClass('krt-PromptRow');
  }

  asks(blocked: Blocked): boolean {
    const mine = this._blocked;
    return (
      !this._cell.isDisposed &&
      blocked.execution_id === mine.execution_id &&
      blocked.since === mine.since &&
      blocked.prompt === mine.prompt &&
      blocked.password === mine.password
    );
  }

  protected override render(): React.ReactElement {
    const who = whoAsks(this._blocked, this._trans);
    return (
      <>
        <Answer
          api={this._feed.api}
          kernelId={this._feed.kernelId}
          blocked={this._blocked}
          trans={this._trans}
          place={this._trans.__('This cell waits for input')}
          focus={this._own.has(this._blocked.execution_id)}
          onLeave={() => this._notebook.activate()}
          onSent={() => this._feed.refresh()}
        />
        {who && <div className="krt-Answer-who">{who}</div>}
      </>
    );
  }
}
