/**
 * Fits a session's notebooks with badges, prompts and notices while their kernel is a session's.
 *
 * A notebook in a hidden tab asks for nothing.
 */
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { Announcer } from './announce';
import { Away } from './away';
import { Badges } from './badges';
import { Notes } from './notes';
import type { Own } from './own';
import { quietRestarts, tellOfDetaching } from './notices';
import type { LossNotices } from './notices';
import { Prompts } from './prompt';
import type { Feed, Sessions } from './sessions';
import { Trust } from './trust';

export class SessionNotebook {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _sessions: Sessions,
    private readonly _own: Own,
    private readonly _notices: LossNotices,
    private readonly _announcer: Announcer,
    private readonly _trans: TranslationBundle
  ) {
    _panel.sessionContext.kernelChanged.connect(this._look, this);
    // lumino has no signal for it, and tabs come and go
    const seen = new IntersectionObserver(() => this._onVisible());
    seen.observe(_panel.node);
    _panel.disposed.connect(() => {
      seen.disconnect();
      this._leave();
    });
    quietRestarts(_panel, _sessions);
    tellOfDetaching(_panel.sessionContext, _sessions, _trans);
    void _panel.context.ready.then(() => _panel.sessionContext.ready).then(() => this._look());
  }

  private async _look(): Promise<void> {
    const kernelId = this._panel.sessionContext.session?.kernel?.id;
    const is = await this._sessions.has(kernelId);
    if (this._panel.isDisposed || kernelId !== this._panel.sessionContext.session?.kernel?.id) {
      return;
    }
    const feed = is && kernelId ? this._sessions.feed(kernelId) : null;
    if (feed === this._feed) {
      return;
    }
    this._leave();
    this._feed = feed;
    if (feed === null) {
      return;
    }
    const { content, model } = this._panel;
    feed.changed.connect(this._onFeed, this);
    this._parts = [new Badges(content, feed, this._trans)];
    if (model?.collaborative) {
      this._parts.push(
        new Prompts(content, feed, this._own, this._announcer, this._trans),
        new Trust(model, this._own),
        new Notes(model.sharedModel, this._announcer, this._trans),
        new Away(this._panel, feed, this._announcer, this._trans)
      );
    }
    this._onVisible();
  }

  private _onFeed(feed: Feed): void {
    this._notices.look(feed);
  }

  private _onVisible(): void {
    const visible = this._feed !== null && this._panel.isVisible;
    if (visible !== this._shown) {
      this._shown = visible;
      if (visible) {
        this._feed?.retain();
      } else {
        this._feed?.release();
      }
    }
  }

  private _leave(): void {
    this._feed?.changed.disconnect(this._onFeed, this);
    this._parts.forEach(part => part.dispose());
    this._parts = [];
    if (this._shown) {
      this._shown = false;
      this._feed?.release();
    }
    this._feed = null;
  }

  private _feed: Feed | null = null;
  private _parts: { dispose(): void }[] = [];
  private _shown = false;
}
