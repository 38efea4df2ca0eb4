/**
 * The session that the person is at: that of the notebook or console which was current last.
 *
 * Going to the file browser or this package's own panel leaves it as it is. It keeps the session's feed
 * running only while somebody looks (`watch`).
 */
import type { ISessionContext } from '@jupyterlab/apputils';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import type { Feed, Sessions } from './sessions';

/** A notebook panel or console: what has a kernel. */
export interface Place extends Widget {
  sessionContext: ISessionContext;
}

export class Current {
  constructor(private readonly _sessions: Sessions) {}

  get place(): Place | null {
    return this._place;
  }

  /** Null where the place's kernel is no session, or not known to be one. */
  get feed(): Feed | null {
    return this._feed;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Keep its overview fresh, or stop that. */
  watch(on: boolean): void {
    if (on === this._watched) {
      return;
    }
    this._watched = on;
    if (on) {
      this._feed?.retain();
    } else {
      this._feed?.release();
    }
  }

  set(place: Place | null): void {
    if (place === this._place) {
      return;
    }
    this._place?.sessionContext.kernelChanged.disconnect(this._look, this);
    this._place?.disposed.disconnect(this._onDisposed, this);
    this._place = place;
    place?.sessionContext.kernelChanged.connect(this._look, this);
    place?.disposed.connect(this._onDisposed, this);
    void this._look();
  }

  private _onDisposed(): void {
    this.set(null);
  }

  private async _look(): Promise<void> {
    const place = this._place;
    await place?.sessionContext.ready;
    const kernelId = place?.sessionContext.session?.kernel?.id;
    const is = await this._sessions.has(kernelId);
    if (place !== this._place || kernelId !== place?.sessionContext.session?.kernel?.id) {
      return;
    }
    const feed = is && kernelId ? this._sessions.feed(kernelId) : null;
    if (feed === this._feed) {
      this._changed.emit();
      return;
    }
    this._feed?.changed.disconnect(this._onFeed, this);
    if (this._watched) {
      feed?.retain();
      this._feed?.release();
    }
    this._feed = feed;
    feed?.changed.connect(this._onFeed, this);
    this._changed.emit();
  }

  private _onFeed(): void {
    this._changed.emit();
  }

  private _place: Place | null = null;
  private _feed: Feed | null = null;
  private _watched = false;
  private _changed = new Signal<this, void>(this);
}
