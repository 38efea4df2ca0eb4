/**
 * A badge at a code cell's lower right corner: its truth where that is not `live`, how far it is while it is
 * under way, and who ran it where that was not the viewer. An empty cell has none. It lies over the space between cells, so nothing moves when it comes or goes.
 *
 * Only cells that are in the document's tree are touched; the others are when they scroll into view.
 */
import type { Cell, ICellModel } from '@jupyterlab/cells';
import type { Notebook } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

import { Edits } from './edits';
import { cellId } from './executor';
import type { Feed } from './sessions';
import { badgeOf } from './text';
import type { Badge, Ran } from './text';

const CLASS = 'krt-badge';
const NONE: Badge = { truth: '', principal: '', title: '' };

export class Badges {
  constructor(
    private readonly _notebook: Notebook,
    private readonly _feed: Feed,
    private readonly _trans: TranslationBundle
  ) {
    _notebook.cellInViewportChanged.connect(this._onViewport, this);
    _notebook.modelContentChanged.connect(this._onContent, this);
    _feed.changed.connect(this.update, this);
    this.update();
  }

  /** Bring every cell in the tree up to date. */
  update(): void {
    for (const cell of this._notebook.widgets) {
      this._show(cell);
    }
  }

  dispose(): void {
    this._disposed = true;
    this._notebook.cellInViewportChanged.disconnect(this._onViewport, this);
    this._notebook.modelContentChanged.disconnect(this._onContent, this);
    this._feed.changed.disconnect(this.update, this);
    window.clearTimeout(this._later);
    for (const cell of this._notebook.widgets) {
      cell.model.metadataChanged.disconnect(this._onMetadata, this);
      cell.model.contentChanged.disconnect(this._onContent, this);
      badgeNode(cell)?.remove();
    }
  }

  private _onViewport(_: Notebook, cell: Cell): void {
    this._show(cell);
  }

  private _onContent(): void {
    window.clearTimeout(this._later);
    this._later = window.setTimeout(() => this.update(), 100);
  }

  private _onMetadata(model: ICellModel, change: { key?: string }): void {
    if (change.key === undefined || change.key === 'kernel_runtime') {
      this._showModel(model);
    }
  }

  private _showModel(model: ICellModel): void {
    const cell = this._notebook.widgets.find(one => one.model === model);
    if (cell) {
      this._show(cell);
    }
  }

  private _show(cell: Cell): void {
    if (cell.model.type !== 'code' || cell.isDisposed) {
      return;
    }
    if (cell.isPlaceholder()) {
      if (!this._awaited.has(cell)) {
        this._awaited.add(cell);
        void cell.ready.then(() => this._show(cell));
      }
      return;
    }
    if (this._disposed || !cell.node.isConnected) {
      return;
    }
    if (!this._watched.has(cell.model)) {
      this._watched.add(cell.model);
      cell.model.metadataChanged.connect(this._onMetadata, this);
      cell.model.contentChanged.connect(this._onContent, this);
    }
    const ran = (cell.model.getMetadata('kernel_runtime') ?? {}) as Ran;
    const overview = this._feed.overview;
    const edited = this._edits.edited(cell.model, ran.source_digest);
    const empty = cell.model.sharedModel.getSource().trim() === '';
    const badge = empty ? NONE : badgeOf(overview?.cells[cellId(cell)], ran, overview, edited);
    draw(cell, badge, this._trans);
  }

  private _edits = new Edits(model => this._showModel(model));
  private _disposed = false;
  private _awaited = new WeakSet<Cell>();
  private _watched = new WeakSet<ICellModel>();
  private _later = 0;
}

/** The part of a cell that holds it, which is not always in the cell's own node: that is built in steps. */
function holderOf(cell: Cell): HTMLElement | undefined {
  return cell.inputArea?.parent?.node;
}

function badgeNode(cell: Cell): HTMLElement | null {
  return holderOf(cell)?.querySelector<HTMLElement>(`:scope > .${CLASS}`) ?? null;
}

function draw(cell: Cell, badge: Badge, trans: TranslationBundle): void {
  let node = badgeNode(cell);
  if (!badge.truth && !badge.principal) {
    node?.remove();
    return;
  }
  if (node === null) {
    node = document.createElement('div');
    node.className = CLASS;
    node.setAttribute('role', 'note');
    holderOf(cell)?.append(node);
  }
  const told = `${badge.truth}\n${badge.principal}\n${badge.title}`;
  if (node.dataset.krtTold === told) {
    return;
  }
  node.dataset.krtTold = told;
  node.title = badge.title;
  node.setAttribute('aria-label', trans.__('Session: %1', badge.title.replace(/\n/g, '; ')));
  node.replaceChildren();
  set(node, 'krtTruth', badge.truth);
  set(node, 'krtPrincipal', badge.principal);
  if (badge.truth) {
    part(node, 'krt-badge-truth', badge.truth);
  }
  if (badge.principal) {
    part(node, 'krt-badge-who', badge.principal);
  }
}

function set(node: HTMLElement, name: string, value: string): void {
  if (value) {
    node.dataset[name] = value;
  } else {
    delete node.dataset[name];
  }
}

function part(node: HTMLElement, name: string, text: string): void {
  const span = document.createElement('span');
  span.className = name;
  span.textContent = text;
  node.append(span);
}
