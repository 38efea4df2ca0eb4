/** The plugins of `@kernel-runtime/lab`. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISessionContextDialogs } from '@jupyterlab/apputils';
import { INotebookCellExecutor } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';

import { Api } from './api';
import { wrapRestart } from './dialogs';
import { Own, SessionCellExecutor } from './executor';
import { ISessions, Sessions } from './sessions';

const DOMAIN = 'kernel_runtime';

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

export default [sessions, own, executor, restart];
