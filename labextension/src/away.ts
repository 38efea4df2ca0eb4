/**
 * The line above a notebook while its server does not answer: what is shown may be old, and what is typed waits.
 *
 * It comes with the first request that fails, and goes with the first that is answered. The kernel and the
 * session are elsewhere; nothing of them is known until then.
 */
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import type { Announcer } from './announce';
import type { Feed } from './sessions';

export class Away {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _feed: Feed,
    private readonly _announcer: Announcer,
    private readonly _trans: TranslationBundle
  ) {
    _feed.changed.connect(this._look, this);
    this._look();
  }

  dispose(): void {
    this._feed.changed.disconnect(this._look, this);
    this._line?.dispose();
  }

  private _look(): void {
    const since = this._feed.awaySince;
    const key = `away ${this._feed.kernelId}`;
    if (since === null) {
      if (this._line !== null) {
        this._line.dispose();
        this._line = null;
        this._announcer.forget(key);
        this._announcer.say(`back ${this._feed.kernelId}`, this._trans.__('The server answers again.'));
      }
      return;
    }
    if (this._line === null) {
      this._line = new Widget();
      this._line.addClass('krt-Away');
      this._line.node.dataset.krtAway = '';
      this._line.node.textContent = this._trans.__(
        'Cut off from the server since %1. What runs in the session goes on; what you type is merged when the server answers. Keep this page open until then.',
        since.toLocaleTimeString()
      );
      this._panel.contentHeader.addWidget(this._line);
      this._announcer.forget(`back ${this._feed.kernelId}`);
      this._announcer.say(key, this._line.node.textContent);
    }
  }

  private _line: Widget | null = null;
}
