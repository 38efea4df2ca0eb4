/**
 * Whose outputs are trusted: those of cells that this page has asked for, from the press to their end.
 *
 * What is shown stays as it is; what comes next decides. So an agent that runs a cell again which somebody had
 * trusted is sanitized, and so is one that runs while its page is open. Everything that is to be trusted beyond
 * that is said by "Trust Notebook", as in any notebook.
 *
 * JupyterLab's own setter writes all outputs of the cell into the shared document anew, where the server is
 * writing them at the same time: they would be there twice, or their end would be lost. So this sets what the
 * model will do with the next ones, which has no public name; `tests/lab/test_security.py` holds that it works.
 */
import type { ICellModel, ICodeCellModel } from '@jupyterlab/cells';
import type { INotebookModel } from '@jupyterlab/notebook';

import type { Own } from './own';
import type { Ran } from './text';

interface Trusting {
  _trusted: boolean;
}

/** Whether outputs that come from now on are trusted. Changes nothing that is shown, nor the document. */
export function trustNext(model: ICellModel, yes: boolean): void {
  if (model.type === 'code') {
    ((model as ICodeCellModel).outputs as unknown as Trusting)._trusted = yes;
  }
}

/** Untrust what comes after the end of that execution, which the document may tell a moment later. */
export function untrustAfter(model: ICellModel, executionId: string | null): void {
  const ended = () => {
    const ran = (model.getMetadata('kernel_runtime') ?? {}) as Ran;
    return ran.execution_id !== executionId || Boolean(ran.outcome);
  };
  let timer = 0;
  const done = () => {
    window.clearTimeout(timer);
    model.metadataChanged.disconnect(look);
    // its outputs may be in the same change as its end
    window.setTimeout(() => trustNext(model, false), 0);
  };
  const look = () => {
    if (ended()) {
      done();
    }
  };
  model.metadataChanged.connect(look);
  timer = window.setTimeout(done, 5000);
  look();
}

/** Watches the cells of one notebook. */
export class Trust {
  constructor(
    private readonly _model: INotebookModel,
    private readonly _own: Own
  ) {
    _model.cells.changed.connect(this._look, this);
    this._look();
  }

  dispose(): void {
    if (!this._model.isDisposed) {
      this._model.cells.changed.disconnect(this._look, this);
      for (const model of this._model.cells) {
        model.metadataChanged.disconnect(this._onMetadata, this);
      }
    }
  }

  private _look(): void {
    for (const model of this._model.cells) {
      if (!this._seen.has(model)) {
        this._seen.set(model, this._ran(model));
        trustNext(model, false);
        model.metadataChanged.connect(this._onMetadata, this);
      }
    }
  }

  private _onMetadata(model: ICellModel): void {
    const ran = this._ran(model);
    if (ran === this._seen.get(model)) {
      return;
    }
    this._seen.set(model, ran);
    if (ran && !this._own.has(ran) && model.trusted) {
      // so that "Trust Notebook" has something to do
      (model as unknown as Trusting)._trusted = false;
    }
  }

  private _ran(model: ICellModel): string | undefined {
    return ((model.getMetadata('kernel_runtime') ?? {}) as Ran).execution_id;
  }

  private _seen = new WeakMap<ICellModel, string | undefined>();
}
