/**
 * What the server tells everybody who has a document open: two texts of one cell, a file that was replaced.
 *
 * It stands in the document's state, so a page that was closed meanwhile finds it too. Each note is shown once
 * in a browser, and stays until it is put away.
 */
import { Notification } from '@jupyterlab/apputils';
import type { INotebookModel } from '@jupyterlab/notebook';

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
    private readonly _announcer: { say(key: string, text: string): void }
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
      Notification.warning(text, { autoClose: false });
    }
    window.localStorage.setItem(SEEN, JSON.stringify(seen.slice(-MOST)));
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
