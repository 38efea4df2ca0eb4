/**
 * What a page knows of the shared document behind a cell.
 */
import type { ICellModel } from '@jupyterlab/cells';
import { encodeStateVector } from 'yjs';
import type { Map as YMap } from 'yjs';

/** The document's state vector in base64: all that this page has typed, and heard of. */
export function stateOf(model: ICellModel): string | undefined {
  const { ymodel } = model.sharedModel as unknown as { ymodel?: YMap<unknown> };
  const doc = ymodel?.doc;
  return doc ? btoa(String.fromCharCode(...encodeStateVector(doc))) : undefined;
}
