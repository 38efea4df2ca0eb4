/**
 * Whether a cell's source is the source that ran: the digest in its metadata against the text on the page.
 *
 * The server compares with the file, which is saved a second after a change; the page has the text itself.
 * Where the browser offers no digests (plain http to another host), the server's word stands.
 */
import type { ICellModel } from '@jupyterlab/cells';

export class Edits {
  /** `known` is called once the answer for that cell is there. */
  constructor(private readonly _known: (model: ICellModel) => void) {}

  /** True, false, or undefined: not known yet, or never. */
  edited(model: ICellModel, ran: string | undefined): boolean | undefined {
    const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
    if (!ran || subtle === undefined) {
      return undefined;
    }
    const source = model.sharedModel.getSource();
    const last = this._digests.get(model);
    if (last?.source === source) {
      return last.digest === null ? undefined : last.digest !== ran;
    }
    this._digests.set(model, { source, digest: null });
    void subtle.digest('SHA-256', new TextEncoder().encode(source)).then(found => {
      const bytes = Array.from(new Uint8Array(found));
      const digest = bytes.map(byte => byte.toString(16).padStart(2, '0')).join('');
      if (this._digests.get(model)?.source === source) {
        this._digests.set(model, { source, digest });
        this._known(model);
      }
    });
    return undefined;
  }

  private _digests = new WeakMap<ICellModel, { source: string; digest: string | null }>();
}
