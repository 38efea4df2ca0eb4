/**
 * What a person is told once: that a session's heap is gone, and that leaving a kernel left the session.
 */
import { Notification } from '@jupyterlab/apputils';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { Announcer } from './announce';
import type { Feed, Sessions } from './sessions';
import { countsOf } from './text';

/** Tells of heaps that were lost, each once in this page. */
export class LossNotices {
  constructor(
    private readonly _show: () => void,
    private readonly _announcer: Announcer,
    private readonly _trans: TranslationBundle
  ) {}

  look(feed: Feed): void {
    const overview = feed.overview;
    if (overview === null) {
      return;
    }
    const dead = overview.state === 'dead';
    if (!overview.heap_lost && !dead) {
      this._withdraw(feed.kernelId);
      return;
    }
    // a death, and the start after it, are one loss
    const last = this._told.get(feed.kernelId);
    if (last !== undefined && (dead ? last.incarnation >= overview.incarnation : true)) {
      return;
    }
    this._withdraw(feed.kernelId);
    const counts = countsOf(overview.counts);
    const message = dead
      ? this._trans.__('Session %1: the kernel has died; its heap is gone.', overview.session)
      : this._trans.__('Session %1: the heap of an earlier incarnation is gone.', overview.session);
    const told = counts ? `${message} ${this._trans.__('Cells: %1.', counts)}` : message;
    this._announcer.say(`lost ${feed.kernelId}`, told);
    const id = Notification.warning(told, {
      autoClose: false,
      actions: [
        {
          label: this._trans.__('What is lost'),
          caption: this._trans.__('Open the session’s panel'),
          callback: this._show
        }
      ]
    });
    this._told.set(feed.kernelId, { incarnation: overview.incarnation, id });
  }

  private _withdraw(kernelId: string): void {
    const last = this._told.get(kernelId);
    if (last !== undefined) {
      Notification.dismiss(last.id);
      this._told.delete(kernelId);
      this._announcer.forget(`lost ${kernelId}`);
    }
  }

  private _told = new Map<string, { incarnation: number; id: string }>();
}

/**
 * Say what a shutdown was: the page left, the session goes on.
 *
 * JupyterLab's own menu says "Shut Down Kernel"; there is no question to put other words into.
 */
export function tellOfDetaching(context: ISessionContext, sessions: Sessions, trans: TranslationBundle): void {
  const tell = async (id: string, name: string) => {
    // asked: a page may be left before it has heard what its kernel is
    if (!(await sessions.has(id)) || context.isDisposed) {
      return;
    }
    Notification.info(trans.__('Detached from the session. It goes on, with its heap and what it runs.'), {
      autoClose: 10_000,
      actions: [
        {
          label: trans.__('Attach again'),
          callback: () => {
            void context.changeKernel({ name });
          }
        }
      ]
    });
  };
  context.kernelChanged.connect((_, change) => {
    const left = change.oldValue;
    if (left && !change.newValue && !context.isDisposed) {
      void tell(left.id, left.name);
    }
  });
}

/**
 * Keep JupyterLab's own dialog away that a kernel "appears to have died. It will restart automatically".
 *
 * Other pages of a session are told of a restart in the words that stock has for a restart by the server.
 * Nobody restarts a session's kernel but people and agents, and what is lost is told by `LossNotices`. The
 * panel has no public switch for it: should its private one go, the dialog is back, and nothing else breaks.
 */
export function quietRestarts(panel: NotebookPanel, sessions: Sessions): void {
  const quiet = () => {
    if (sessions.knows(panel.sessionContext.session?.kernel?.id) === true) {
      (panel as unknown as { _autorestarting: boolean })._autorestarting = true;
    }
  };
  panel.sessionContext.statusChanged.connect(quiet);
  panel.sessionContext.kernelChanged.connect(quiet);
  void panel.sessionContext.ready.then(async () => {
    await sessions.has(panel.sessionContext.session?.kernel?.id);
    quiet();
  });
}
