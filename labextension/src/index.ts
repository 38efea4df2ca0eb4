/** The plugins of `@kernel-runtime/lab`. */
import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, ISessionContextDialogs, showDialog } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookCellExecutor, INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';

import { Announcer } from './announce';
import { Api } from './api';
import { Current } from './current';
import type { Place } from './current';
import { askRestart, wrapRestart } from './dialogs';
import { SessionCellExecutor } from './executor';
import { sessionIcon } from './icon';
import { SessionNotebook } from './notebooks';
import { LossNotices } from './notices';
import { Own } from './own';
import { SessionPanel } from './panel';
import type { Deeds } from './sections';
import { ISessions, Sessions } from './sessions';

const DOMAIN = 'kernel_runtime';

const SHOW_PANEL = 'kernel-runtime:show-session';

const IOwn = new Token<Own>('@kernel-runtime/lab:IOwn', 'Executions that this page asked for.');

const sessions: JupyterFrontEndPlugin<Sessions> = {
  id: '@kernel-runtime/lab:sessions',
  description: 'Knows which kernels are sessions, and what is so in each.',
  autoStart: true,
  provides: ISessions,
  activate: (app: JupyterFrontEnd) => new Sessions(new Api(app.serviceManager.serverSettings))
};

const own: JupyterFrontEndPlugin<Own> = {
  id: '@kernel-runtime/lab:own',
  description: 'Remembers which executions this page asked for.',
  autoStart: true,
  provides: IOwn,
  activate: () => new Own()
};

const executor: JupyterFrontEndPlugin<INotebookCellExecutor> = {
  id: '@kernel-runtime/lab:cell-executor',
  description: 'Runs cells of sessions through the journal, all others as JupyterLab does.',
  autoStart: true,
  requires: [ISessions, IOwn],
  optional: [ITranslator],
  provides: INotebookCellExecutor,
  activate: (_app: JupyterFrontEnd, known: Sessions, mine: Own, translator: ITranslator | null) =>
    new SessionCellExecutor(known, mine, (translator ?? nullTranslator).load(DOMAIN))
};

const restart: JupyterFrontEndPlugin<void> = {
  id: '@kernel-runtime/lab:restart',
  description: 'Says what a restart of a session means before it is done.',
  autoStart: true,
  requires: [ISessions, ISessionContextDialogs],
  optional: [ITranslator],
  activate: (
    _app: JupyterFrontEnd,
    known: Sessions,
    dialogs: ISessionContextDialogs,
    translator: ITranslator | null
  ) => wrapRestart(dialogs, known, (translator ?? nullTranslator).load(DOMAIN))
};

const notebooks: JupyterFrontEndPlugin<void> = {
  id: '@kernel-runtime/lab:notebooks',
  description: 'Shows in a session’s notebook what is true of each cell, who ran it, and what waits for input.',
  autoStart: true,
  requires: [ISessions, IOwn, INotebookTracker],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    known: Sessions,
    mine: Own,
    tracker: INotebookTracker,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const announcer = new Announcer();
    const notices = new LossNotices(() => void app.commands.execute(SHOW_PANEL), announcer, trans);
    const fit = (panel: NotebookPanel) => void new SessionNotebook(panel, known, mine, notices, announcer, trans);
    tracker.forEach(fit);
    tracker.widgetAdded.connect((_, panel) => fit(panel));
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: '@kernel-runtime/lab:panel',
  description: 'The side panel of the session at hand.',
  autoStart: true,
  requires: [ISessions, INotebookTracker],
  optional: [IConsoleTracker, ISessionContextDialogs, ICommandPalette, ILayoutRestorer, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    known: Sessions,
    tracker: INotebookTracker,
    consoles: IConsoleTracker | null,
    dialogs: ISessionContextDialogs | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const current = new Current(known);
    const follow = (place: Place | null) => place && current.set(place);
    tracker.currentChanged.connect((_, place) => follow(place));
    consoles?.currentChanged.connect((_, place) => follow(place));
    app.shell.currentChanged?.connect(() => {
      const widget = app.shell.currentWidget as Place | null;
      if (widget && (tracker.has(widget) || consoles?.has(widget))) {
        follow(widget);
      }
    });
    follow(tracker.currentWidget);

    const widget = new SessionPanel({
      current,
      sessions: known,
      deeds: deedsOf(current, dialogs, trans),
      open: path => void app.commands.execute('docmanager:open', { path }),
      trans
    });
    widget.id = 'kernel-runtime-session';
    widget.title.icon = sessionIcon;
    widget.title.caption = trans.__('Session');
    widget.node.setAttribute('role', 'region');
    widget.node.setAttribute('aria-label', trans.__('Session'));
    app.shell.add(widget, 'right', { rank: 700, type: 'Session' });
    restorer?.add(widget, widget.id);

    app.commands.addCommand(SHOW_PANEL, {
      label: trans.__('Show Session Panel'),
      caption: trans.__('What is still true of the session, and what it waits for'),
      icon: sessionIcon,
      execute: () => {
        // the palette gives the keyboard back to the notebook once this has returned
        window.setTimeout(() => app.shell.activateById(widget.id), 0);
      }
    });
    palette?.addItem({ command: SHOW_PANEL, category: trans.__('Kernel Operations') });
  }
};

function deedsOf(
  current: Current,
  dialogs: ISessionContextDialogs | null,
  trans: ReturnType<ITranslator['load']>
): Deeds {
  const notebook = () => (current.place instanceof NotebookPanel ? current.place.content : null);
  // a table asks for many cells at once, in a notebook of thousands
  let places: Map<string, number> | null = null;
  const find = (id: string) => {
    if (places === null) {
      places = new Map(notebook()?.widgets.map((cell, at) => [cell.model.sharedModel.getId(), at]));
      window.setTimeout(() => (places = null), 0);
    }
    return places.get(id) ?? -1;
  };
  const deeds: Deeds = {
    reveal: id => {
      const at = find(id);
      const content = notebook();
      if (at < 0 || content === null) {
        return false;
      }
      content.activeCellIndex = at;
      content.deselectAll();
      void content.scrollToItem(at, 'center');
      content.activate();
      return true;
    },
    source: id => {
      const at = find(id);
      const first = at < 0 ? '' : notebook()?.widgets[at].model.sharedModel.getSource().trim().split('\n', 1)[0];
      return first ?? '';
    },
    restart: async () => {
      const { place, feed } = current;
      if (place?.sessionContext.session?.kernel && dialogs) {
        await deeds.attempt(() => dialogs.restart(place.sessionContext));
      } else if (feed && (await askRestart(feed.overview, feed.overview?.session ?? '', trans))) {
        await deeds.attempt(() => feed.api.act(feed.kernelId, 'restart'));
      }
    },
    attempt: async what => {
      try {
        await what();
      } catch (error) {
        const { message, hint } = error as { message?: string; hint?: string };
        await showDialog({
          title: trans.__('That was refused'),
          body: [message ?? String(error), hint].filter(Boolean).join('\n\n'),
          buttons: [Dialog.okButton()]
        });
      } finally {
        current.feed?.refresh();
      }
    }
  };
  return deeds;
}

export default [sessions, own, executor, restart, notebooks, panel];
