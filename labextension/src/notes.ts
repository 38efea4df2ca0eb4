/**
 * What the server tells everybody who has a document open: two texts of one cell, a file that was replaced.
 *
 * It stands in the document's state, so a page that was closed meanwhile finds it too. Each note is shown once
 * in a browser, and stays until it is put away.
 */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { INotebookModel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

const KEY = 'kernel_runtime_notes';
const SEEN = '@kernel-runtime/lab:notes';
const MOST = 200;

interface Note {
  id: string;
  text: string;
}

export class Notes {
  constructor(
    private readonly _shared: INotebookModel['sharedModel'],
    private readonly _announcer: { say(key: string, text: string): void },
    private readonly _trans: TranslationBundle
  ) {
    _shared.changed.connect(this._onChange, this);
    this._look();
  }

  dispose(): void {
    this._shared.changed.disconnect(this._onChange, this);
  }

  private _onChange(_: unknown, change: { stateChange?: { name: string }[] }): void {
    if (change.stateChange?.some(one => one.name === KEY)) {
      this._look();
    }
  }

  private _look(): void {
    const notes = (this._shared.getState(KEY) ?? []) as unknown as Note[];
    const seen = seenHere();
    for (const { id, text } of notes.filter(note => !seen.includes(note.id))) {
      seen.push(id);
      this._announcer.say(`note ${id}`, text);
      Notification.warning(text, { autoClose: false, actions: [this._whole(text)] });
    }
    window.localStorage.setItem(SEEN, JSON.stringify(seen.slice(-MOST)));
  }

  /** JupyterLab cuts a notification at 140 characters: often just where the path of a file begins. */
  private _whole(text: string): Notification.IAction {
    const title = this._trans.__('Notebook and file');
    const buttons = [Dialog.okButton()];
    return {
      label: this._trans.__('Read all of it'),
      callback: () => void showDialog({ title, body: text, buttons })
    };
  }
}

function seenHere(): string[] {
  try {
    const seen: unknown = JSON.parse(window.localStorage.getItem(SEEN) ?? '[]');
    return Array.isArray(seen) ? seen : [];
  } catch {
    return [];
  }
}
