/**
 * Which kernels are sessions, and what is so in each.
 *
 * A kernel id names the same session for ever, and one that is no session never becomes one, so both are
 * asked once. A `Feed` is one long poll for all who show the same session: it runs while somebody wants it
 * and the page is visible, and asks ever more seldom while the server is away, at once when the browser says
 * that the network is back.
 */
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';
import { Token } from '@lumino/coreutils';

import type { Api } from './api';
import { Refusal, Unreachable } from './errors';
import type { Overview } from './model';

export const ISessions = new Token<Sessions>(
  '@kernel-runtime/lab:ISessions',
  'Which kernels are sessions of kernel-runtime, and what is so in each.'
);

export class Sessions {
  constructor(readonly api: Api) {}

  /** Whether that kernel is a session's. Where the server has no such thing, none is. */
  async has(kernelId: string | null | undefined): Promise<boolean> {
    if (!kernelId) {
      return false;
    }
    const known = this._known.get(kernelId);
    if (known !== undefined) {
      return known;
    }
    try {
      this._asking ??= this.api.sessions();
      const rows = await this._asking;
      for (const row of rows) {
        if (row.kernel_id) {
          this._known.set(row.kernel_id, true);
        }
      }
    } catch (error) {
      if (!(error instanceof Refusal)) {
        return false;
      }
    } finally {
      this._asking = null;
    }
    if (!this._known.has(kernelId)) {
      this._known.set(kernelId, false);
    }
    return this._known.get(kernelId) ?? false;
  }

  /** What is known without asking: undefined is "not yet". */
  knows(kernelId: string | null | undefined): boolean | undefined {
    return kernelId ? this._known.get(kernelId) : false;
  }

  feed(kernelId: string): Feed {
    let feed = this._feeds.get(kernelId);
    if (feed === undefined) {
      feed = new Feed(this.api, kernelId);
      this._feeds.set(kernelId, feed);
    }
    return feed;
  }

  private _known = new Map<string, boolean>();
  private _asking: Promise<import('./model').SessionRow[]> | null = null;
  private _feeds = new Map<string, Feed>();
}

const SHORTEST = 250;
const LONGEST = 30_000;
/** While the server is away: a person looks at the page and waits for it. */
const LONGEST_AWAY = 8000;

export class Feed {
  constructor(
    readonly api: Api,
    readonly kernelId: string
  ) {
    document.addEventListener('visibilitychange', () => this._wake());
    window.addEventListener('online', () => this._wake());
  }

  /** The latest; null until there is one. */
  get overview(): Overview | null {
    return this._overview;
  }

  /** Why there is no news: the server is away, or says no. Null while it answers. */
  get trouble(): string | null {
    return this._trouble;
  }

  /** When it was first not reached; null where it answers, were it with a refusal. */
  get awaySince(): Date | null {
    return this._awaySince;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  retain(): void {
    this._wanted += 1;
    this._wake();
    if (!this._running) {
      this._running = true;
      void this._run();
    }
  }

  release(): void {
    this._wanted -= 1;
    if (this._wanted === 0) {
      this._request?.abort();
      this._wake();
    }
  }

  /** Ask now, whether or not the journal has news. */
  refresh(): void {
    this._head = null;
    this._request?.abort();
    this._wake();
  }

  private async _run(): Promise<void> {
    let failures = 0;
    while (this._wanted > 0) {
      if (document.hidden) {
        await this._sleep(LONGEST);
        continue;
      }
      this._request = new AbortController();
      const { signal } = this._request;
      let rest = SHORTEST;
      try {
        const overview = await this.api.overview(this.kernelId, this._head, signal);
        this._head = overview.head;
        this._overview = overview;
        this._trouble = null;
        this._awaySince = null;
        failures = 0;
        // a table of thousands is not drawn four times a second
        rest = Math.max(SHORTEST, Math.min(3000, Object.keys(overview.cells).length / 2));
        this._changed.emit();
      } catch (error) {
        if (!signal.aborted) {
          this._trouble = error instanceof Error ? error.message : String(error);
          const away = error instanceof Unreachable;
          this._awaySince = away ? (this._awaySince ?? new Date()) : null;
          this._head = null;
          rest = Math.min(away ? LONGEST_AWAY : LONGEST, 1000 * 2 ** failures++);
          this._changed.emit();
        }
      }
      await this._sleep(rest);
    }
    this._running = false;
  }

  private _sleep(ms: number): Promise<void> {
    return new Promise(resolve => {
      const timer = window.setTimeout(() => this._wake(), ms);
      this._wake = () => {
        window.clearTimeout(timer);
        this._wake = nothing;
        resolve();
      };
    });
  }

  private _wake: () => void = nothing;
  private _overview: Overview | null = null;
  private _trouble: string | null = null;
  private _awaySince: Date | null = null;
  private _changed = new Signal<this, void>(this);
  private _request: AbortController | null = null;
  private _head: number | null = null;
  private _wanted = 0;
  private _running = false;
}

function nothing(): void {
  /* nobody sleeps */
}
