/**
 * Runs cells: those of a session through the journal, all others as JupyterLab does.
 *
 * A session's cell is posted to the server, which answers when the intent to run it is on disk. Outputs come
 * back with the shared document, so they are there whether or not this page is. A notebook that is not shared
 * runs over its kernel's websocket, as ever; the session's front door journals it there.
 */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { Cell as CellWidget, CodeCell } from '@jupyterlab/cells';
import { KernelError, runCell } from '@jupyterlab/notebook';
import type { INotebookCellExecutor } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { UUID } from '@lumino/coreutils';

import { askAnyway } from './dialogs';
import type { Own } from './own';
import { Queue } from './queue';
import type { Ending } from './queue';
import type { Sessions } from './sessions';
import { stateOf } from './shared';
import { trustNext, untrustAfter } from './trust';

export class SessionCellExecutor implements INotebookCellExecutor {
  constructor(
    private readonly _sessions: Sessions,
    private readonly _own: Own,
    private readonly _trans: TranslationBundle
  ) {}

  async runCell(options: INotebookCellExecutor.IRunCellOptions): Promise<boolean> {
    const { cell, notebook, sessionContext } = options;
    const kernel = sessionContext?.session?.kernel;
    if (
      cell.model.type !== 'code' ||
      !notebook.collaborative ||
      !kernel ||
      sessionContext.isTerminating ||
      !(await this._sessions.has(kernel.id))
    ) {
      return runCell(options);
    }
    const source = cell.model.sharedModel.getSource();
    if (source.trim() === '') {
      return runCell(options);
    }
    options.onCellExecutionScheduled({ cell });
    const code = cell as CodeCell;
    code.outputHidden = false;
    code.setPrompt('*');
    const { model } = code;
    // what it shows from here on is of somebody who asked for it here
    trustNext(model, true);
    let executionId: string | null = null;
    const ending = await this._queue(kernel.id).run({
      cell_id: code.model.sharedModel.getId(),
      source,
      key: UUID.uuid4(),
      client: kernel.clientId,
      document: stateOf(code.model),
      onAccepted: accepted => {
        executionId = accepted.execution_id;
        this._own.add(executionId);
        if (!code.isDisposed) {
          trustNext(model, true);
          model.sharedModel.setMetadata('trusted', true);
        }
      }
    });
    if (!code.isDisposed) {
      untrustAfter(model, executionId);
    }
    settlePrompt(code);
    return this._told(options, code, ending);
  }

  private _told(options: INotebookCellExecutor.IRunCellOptions, cell: CodeCell, ending: Ending): boolean {
    if (ending.kind === 'done' && ending.state.outcome === 'ok') {
      options.onCellExecuted({ cell, success: true });
      return true;
    }
    if (ending.kind === 'refused') {
      void showDialog({
        title: this._trans.__('The cell was not run'),
        body: [ending.refusal.message, ending.refusal.hint].filter(Boolean).join('\n\n'),
        buttons: [Dialog.okButton()]
      });
    } else if (ending.kind === 'lost' && !cell.isDisposed) {
      Notification.warning(
        this._trans.__(
          'No word from the session about a cell (%1). It runs at most once; its outputs come when the server is back.',
          ending.reason
        )
      );
    }
    const error = kernelError(ending);
    options.onCellExecuted({ cell, success: false, error });
    if (error !== null && !cell.isDisposed) {
      // as stock: what was to run after it is not run
      throw error;
    }
    return false;
  }

  private _queue(kernelId: string): Queue {
    let queue = this._queues.get(kernelId);
    if (queue === undefined) {
      const { api } = this._sessions;
      const feed = this._sessions.feed(kernelId);
      let shown = '';
      queue = new Queue({
        execute: request => api.execute(kernelId, request),
        execution: executionId => api.execution(kernelId, executionId, 25),
        accept: refusal => askAnyway(refusal, this._trans),
        blocked: executionId => {
          if (feed.overview?.blocked?.execution_id !== executionId && shown !== executionId) {
            shown = executionId;
            feed.refresh();
          }
        },
        pause: ms => new Promise(resolve => window.setTimeout(resolve, ms)),
        alive: () => true
      });
      this._queues.set(kernelId, queue);
    }
    return queue;
  }

  private _queues = new Map<string, Queue>();
}

/** `[*]` is the page's own until the document says how it stands. */
function settlePrompt(cell: CodeCell): void {
  if (!cell.isDisposed && cell.model.executionState !== 'running') {
    cell.setPrompt(`${cell.model.executionCount ?? ''}`);
  }
}

function kernelError(ending: Ending): KernelError | null {
  if (ending.kind !== 'done') {
    return null;
  }
  const { error, outcome, execution_count } = ending.state;
  return new KernelError({
    status: 'error',
    execution_count,
    ename: error?.ename ?? (outcome || 'unknown'),
    evalue: error?.evalue ?? '',
    traceback: error?.traceback ?? []
  } as unknown as ConstructorParameters<typeof KernelError>[0]);
}

/** The code cell's id as the journal has it. */
export function cellId(cell: CellWidget): string {
  return cell.model.sharedModel.getId();
}
