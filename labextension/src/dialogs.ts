/**
 * What a person is asked before something of a session is given up.
 */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { ISessionContext, ISessionContextDialogs } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import type { Refusal } from './errors';
import type { LossReport, Overview } from './model';
import type { Sessions } from './sessions';
import { bytes, countsOf, worst } from './text';

/** Refused because the heap is gone: whether to run all the same. */
export async function askAnyway(refusal: Refusal, trans: TranslationBundle): Promise<boolean> {
  const report = (refusal.fields.report ?? {}) as LossReport;
  const result = await showDialog({
    title: trans.__('The heap of this session is gone'),
    body: lossBody(refusal, report, trans),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel'), caption: trans.__('Nothing is run') }),
      Dialog.warnButton({
        label: trans.__('Run anyway'),
        caption: trans.__('Accept the loss and run the cell in the heap as it is now')
      })
    ],
    defaultButton: 0
  });
  return result.button.accept;
}

function lossBody(refusal: Refusal, report: LossReport, trans: TranslationBundle): Widget {
  const body = new Widget();
  body.addClass('jp-krt-Loss');
  body.node.dataset.krtDialog = 'heap-lost';
  paragraph(body, refusal.message);
  const cells = countsOf(report.counts);
  const names = countsOf(report.name_counts);
  if (cells) {
    paragraph(body, trans.__('Cells: %1.', cells));
  }
  if (names) {
    paragraph(body, trans.__('Names: %1.', names));
  }
  const gone = worst(report.names ?? [], 8);
  if (gone.length > 0) {
    list(
      body,
      gone.map(name => `${name.name} · ${name.truth}${name.bytes ? ` · ${bytes(name.bytes)}` : ''}`)
    );
  } else {
    list(
      body,
      worst(report.cells ?? [], 8).map(cell => `${cell.evidence?.source ?? cell.cell_id} · ${cell.truth}`)
    );
  }
  paragraph(body, trans.__('The cell was not run. The journal and the notebook have everything that happened.'));
  return body;
}

/** Before a restart: what goes, who is told, what stays. */
export async function askRestart(overview: Overview | null, name: string, trans: TranslationBundle): Promise<boolean> {
  const body = new Widget();
  body.addClass('jp-krt-Loss');
  body.node.dataset.krtDialog = 'restart';
  if (overview === null) {
    paragraph(body, trans.__('Everything in the heap of this session is lost.'));
  } else {
    const live = overview.names.filter(one => one.truth !== 'lost');
    const size = live.reduce((sum, one) => sum + (one.bytes ?? 0), 0);
    paragraph(
      body,
      live.length === 0
        ? trans.__('Session %1, incarnation %2: no name in its heap is known.', overview.session, overview.incarnation)
        : trans._n(
            'Session %2, incarnation %3: the heap is lost, %1 name of %4.',
            'Session %2, incarnation %3: the heap is lost, %1 names of %4.',
            live.length,
            overview.session,
            overview.incarnation,
            bytes(size)
          )
    );
    list(
      body,
      [...live]
        .sort((a, b) => (b.bytes ?? 0) - (a.bytes ?? 0))
        .slice(0, 5)
        .map(one => [one.name, one.type, one.bytes ? bytes(one.bytes) : ''].filter(Boolean).join(' · '))
    );
    if (overview.running) {
      paragraph(body, trans.__('A cell is running: it ends as died, and what is queued is not run.'));
    }
  }
  paragraph(
    body,
    trans.__('Every client of the session is told, and an agent’s next cell is refused until it has seen what is lost.')
  );
  paragraph(body, trans.__('What stays: the journal, the notebook with all its outputs, and managed processes.'));
  const result = await showDialog({
    title: trans.__('Restart the kernel of %1?', name),
    body,
    buttons: [
      Dialog.cancelButton({ ariaLabel: trans.__('Cancel Kernel Restart') }),
      Dialog.warnButton({ label: trans.__('Restart'), ariaLabel: trans.__('Confirm Kernel Restart') })
    ],
    defaultButton: 0
  });
  return result.button.accept;
}

/**
 * Have JupyterLab's restart ask what a restart of a session means.
 *
 * Its object stays, and so do its settings, for other kernels. For a session the question is asked also where
 * somebody chose not to be asked: the heap is not theirs alone.
 */
export function wrapRestart(dialogs: ISessionContextDialogs, sessions: Sessions, trans: TranslationBundle): void {
  const stock = dialogs.restart.bind(dialogs);
  dialogs.restart = async (context: ISessionContext, options?: ISessionContext.IRestartOptions) => {
    await context.initialize();
    const kernel = context.session?.kernel;
    if (context.isDisposed || !kernel || !(await sessions.has(kernel.id))) {
      return stock(context, options);
    }
    const feed = sessions.feed(kernel.id);
    const overview = await sessions.api
      .overview(kernel.id, null, AbortSignal.timeout(5000))
      .catch(() => feed.overview);
    if (!(await askRestart(overview, overview?.session ?? context.name, trans)) || kernel.isDisposed) {
      return false;
    }
    await options?.onBeforeRestart();
    await context.restartKernel();
    feed.refresh();
    return true;
  };
}

function paragraph(body: Widget, text: string): void {
  const node = document.createElement('p');
  node.textContent = text;
  body.node.append(node);
}

function list(body: Widget, lines: string[]): void {
  if (lines.length === 0) {
    return;
  }
  const node = document.createElement('ul');
  for (const line of lines) {
    const item = document.createElement('li');
    item.textContent = line;
    node.append(item);
  }
  body.node.append(node);
}
