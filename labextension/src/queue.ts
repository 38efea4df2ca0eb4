/**
 * The cells that this page has sent, or will send, to one session.
 *
 * They are sent one after the other and in order, and one long poll waits for the oldest of them: a browser
 * has six connections to a server, and Run All of a hundred cells must leave some for everything else. After
 * a failure nothing is sent that was in the queue when it failed, as a kernel drops its queue. A request
 * whose answer was lost is sent again under the same key, so that no press runs twice.
 *
 * Not promised: that the page learns of an end while the server is away. The cell goes on, and the document
 * has its outputs when the server is back.
 */
import type { ExecuteRequest } from './api';
import { Refusal, Unreachable } from './errors';
import type { Accepted, ExecutionState } from './model';

/** What became of a cell; `dropped` was never sent. */
export type Ending =
  | { kind: 'done'; executionId: string; state: ExecutionState }
  | { kind: 'dropped' }
  | { kind: 'refused'; refusal: Refusal }
  | { kind: 'lost'; reason: string };

export interface Wire {
  execute(request: ExecuteRequest): Promise<Accepted>;
  execution(executionId: string): Promise<ExecutionState>;
  /** Whether to run in spite of a lost heap. */
  accept(refusal: Refusal): Promise<boolean>;
  /** It is waiting for input: something may want to show that. */
  blocked(executionId: string): void;
  /** Resolves after so many milliseconds. */
  pause(ms: number): Promise<void>;
  /** Whether anybody still waits. */
  alive(): boolean;
}

export interface Cell {
  cell_id: string;
  source: string;
  key: string;
  client: string;
  document?: string;
  /** Its intent is on the server's disk. */
  onAccepted?: (accepted: Accepted) => void;
}

const PATIENCE = 120_000;
const PAUSES = [250, 500, 1000, 2000, 4000];

export class Queue {
  constructor(private readonly _wire: Wire) {}

  /** Cells that are not done. */
  get length(): number {
    return this._length;
  }

  async run(cell: Cell): Promise<Ending> {
    const queued = this._failures;
    this._length += 1;
    const sent = this._sending.then(() => this._send(cell, queued));
    this._sending = sent.then(nothing, nothing);
    const ended = this._waiting.then(async () => this._settle(await sent));
    this._waiting = ended.then(nothing, nothing);
    try {
      return await ended;
    } finally {
      this._length -= 1;
    }
  }

  private async _send(cell: Cell, queued: number): Promise<Accepted | Ending> {
    const request: ExecuteRequest = {
      cell_id: cell.cell_id,
      source: cell.source,
      key: cell.key,
      client: cell.client,
      document: cell.document
    };
    for (;;) {
      if (this._failures !== queued) {
        return { kind: 'dropped' };
      }
      if (this._last !== null) {
        request.after = this._last;
      }
      try {
        const accepted = await this._insist(() => this._wire.execute(request));
        this._last = accepted.execution_id;
        cell.onAccepted?.(accepted);
        return accepted;
      } catch (error) {
        if (error instanceof Refusal && error.type === 'HeapLost' && !request.accept) {
          if (await this._wire.accept(error)) {
            request.accept = true;
            continue;
          }
          return this._failed({ kind: 'dropped' });
        }
        if (error instanceof Refusal && error.fields.after !== undefined) {
          // the one before it has failed, and the wait for that one is about to say so
          return { kind: 'dropped' };
        }
        return this._failed(
          error instanceof Refusal
            ? { kind: 'refused', refusal: error }
            : { kind: 'lost', reason: error instanceof Error ? error.message : String(error) }
        );
      }
    }
  }

  private async _settle(sent: Accepted | Ending): Promise<Ending> {
    if ('kind' in sent) {
      return sent;
    }
    const executionId = sent.execution_id;
    let failed = 0;
    while (this._wire.alive()) {
      try {
        const state = await this._wire.execution(executionId);
        failed = 0;
        if (state.status === 'done') {
          if (this._last === executionId) {
            this._last = null;
          }
          const ending: Ending = { kind: 'done', executionId, state };
          // what was aborted fell with an earlier one; what was pressed since has nothing to do with it
          return state.outcome === 'ok' || state.outcome === 'aborted' ? ending : this._failed(ending);
        }
        if (state.status === 'blocked') {
          this._wire.blocked(executionId);
          await this._wire.pause(1000);
        }
      } catch (error) {
        if (!(error instanceof Unreachable)) {
          return this._failed({ kind: 'lost', reason: error instanceof Error ? error.message : String(error) });
        }
        await this._wire.pause(PAUSES[Math.min(failed++, PAUSES.length - 1)]);
      }
    }
    return { kind: 'lost', reason: 'the page was closed' };
  }

  /** Ask until there is an answer, for a while. */
  private async _insist<T>(ask: () => Promise<T>): Promise<T> {
    let waited = 0;
    for (let turn = 0; ; turn++) {
      try {
        return await ask();
      } catch (error) {
        if (!(error instanceof Unreachable) || waited >= PATIENCE || !this._wire.alive()) {
          throw error;
        }
        const pause = PAUSES[Math.min(turn, PAUSES.length - 1)];
        waited += pause;
        await this._wire.pause(pause);
      }
    }
  }

  private _failed(ending: Ending): Ending {
    this._failures += 1;
    this._last = null;
    return ending;
  }

  private _sending: Promise<void> = Promise.resolve();
  private _waiting: Promise<void> = Promise.resolve();
  private _failures = 0;
  private _last: string | null = null;
  private _length = 0;
}

function nothing(): void {
  /* how it ended is told to whoever asked */
}
