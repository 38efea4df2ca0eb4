/**
 * Tells a screen reader what happened that nobody asked for: a cell waits, a heap is gone, the server is away.
 *
 * One region for the whole page, which is there before anything is said in it: what comes into the document
 * together with its words is not read out everywhere. Each thing is said once, whoever shows it.
 */
export class Announcer {
  constructor() {
    this._node.className = 'krt-sr';
    this._node.setAttribute('role', 'alert');
    this._node.dataset.krtLive = '';
    document.body.append(this._node);
  }

  /** Say it, unless the same was said under that key last. */
  say(key: string, text: string): void {
    if (this._said.get(key) === text) {
      return;
    }
    this._said.set(key, text);
    const line = document.createElement('p');
    line.textContent = text;
    this._node.replaceChildren(line);
  }

  /** It is no longer so: should it come back, it is said again. */
  forget(key: string): void {
    this._said.delete(key);
  }

  private _node = document.createElement('div');
  private _said = new Map<string, string>();
}
