import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { ExecuteRequest } from '../src/api';
import { Refusal, Unreachable } from '../src/errors';
import type { Accepted, ExecutionState } from '../src/model';
import { Queue } from '../src/queue';
import type { Cell, Ending } from '../src/queue';

const LOST = new Refusal(409, 'HeapLost', 'the heap is gone', '', {});

/** A server in memory: what it was asked, and what it is to answer. */
class Server {
  readonly asked: ExecuteRequest[] = [];
  readonly outcomes = new Map<string, string>();
  readonly waits: string[] = [];
  accepting = true;
  dialogs = 0;
  /** Thrown by the next requests, in order; null: answered. */
  faults: (Error | null)[] = [];
  gates = new Map<string, Promise<void>>();

  readonly queue = new Queue({
    execute: async request => {
      this.asked.push({ ...request });
      const fault = this.faults.shift();
      if (fault) {
        throw fault;
      }
      return { execution_id: request.cell_id, cell_id: request.cell_id, recorded: false, cursor: 0 } as Accepted;
    },
    execution: async id => {
      this.waits.push(id);
      await this.gates.get(id);
      return state(this.outcomes.get(id) ?? 'ok');
    },
    accept: async () => {
      this.dialogs += 1;
      return this.accepting;
    },
    blocked: () => undefined,
    pause: async () => undefined,
    alive: () => true
  });

  run(...ids: string[]): Promise<Ending[]> {
    return Promise.all(ids.map(id => this.queue.run(cell(id))));
  }

  get sent(): string[] {
    return this.asked.map(request => request.cell_id);
  }
}

function cell(id: string): Cell {
  return { cell_id: id, source: `run ${id}`, key: `key-${id}`, client: 'page' };
}

function state(outcome: string): ExecutionState {
  return { status: 'done', outcome, execution_count: 1, blocked: null, error: null };
}

const kinds = (endings: Ending[]) => endings.map(one => (one.kind === 'done' ? one.state.outcome : one.kind));

test('cells are sent in order, and one is waited for at a time', async () => {
  const server = new Server();
  let open = () => {};
  server.gates.set('a', new Promise(resolve => (open = resolve)));
  const all = server.run('a', 'b', 'c');
  await turn();
  assert.deepEqual(server.sent, ['a', 'b', 'c']);
  assert.deepEqual(server.waits, ['a']);
  open();
  assert.deepEqual(kinds(await all), ['ok', 'ok', 'ok']);
  assert.deepEqual(server.waits, ['a', 'b', 'c']);
});

test('each names the one before it, so that the server need not run it after a failure', async () => {
  const server = new Server();
  await server.run('a', 'b');
  assert.deepEqual(
    server.asked.map(request => request.after),
    [undefined, 'a']
  );
});

test('after a failure nothing of the queue is sent, and what is pressed later is', async () => {
  const server = new Server();
  server.faults = [new Refusal(400, 'InvalidSource', 'no', '', {})];
  assert.deepEqual(kinds(await server.run('a', 'b')), ['refused', 'dropped']);
  assert.deepEqual(kinds(await server.run('c')), ['ok']);
  assert.deepEqual(server.sent, ['a', 'c']);
  assert.equal(server.asked[1].after, undefined);
});

test('a cell that raised drops what is not sent; what the server aborted drops nothing more', async () => {
  const server = new Server();
  server.outcomes.set('a', 'error').set('b', 'aborted');
  const first = server.run('a', 'b');
  assert.deepEqual(kinds(await first), ['error', 'aborted']);
  assert.deepEqual(kinds(await server.run('c')), ['ok']);
});

test('the server knows of a failure first: what it does not run then is dropped, without a word', async () => {
  const server = new Server();
  server.outcomes.set('a', 'error');
  server.faults = [null, new Refusal(409, 'Refused', 'the cell before it ended in error', '', { after: 'a' })];
  assert.deepEqual(kinds(await server.run('a', 'b')), ['error', 'dropped']);
  assert.deepEqual(kinds(await server.run('c')), ['ok']);
});

test('a request whose answer was lost is sent again under the same key', async () => {
  const server = new Server();
  server.faults = [new Unreachable('reset'), new Unreachable('502'), null];
  assert.deepEqual(kinds(await server.run('a')), ['ok']);
  assert.deepEqual(
    server.asked.map(request => request.key),
    ['key-a', 'key-a', 'key-a']
  );
});

test('a server that stays away ends the wait, and what was queued is not sent', async () => {
  const server = new Server();
  server.faults = Array.from({ length: 200 }, () => new Unreachable('gone'));
  assert.deepEqual(kinds(await server.run('a', 'b')), ['lost', 'dropped']);
  assert.equal(new Set(server.sent).size, 1);
});

test('a lost heap is asked about once, and accepted with the same key', async () => {
  const server = new Server();
  server.faults = [LOST];
  assert.deepEqual(kinds(await server.run('a', 'b')), ['ok', 'ok']);
  assert.equal(server.dialogs, 1);
  assert.deepEqual(
    server.asked.map(request => [request.key, request.accept]),
    [
      ['key-a', undefined],
      ['key-a', true],
      ['key-b', undefined]
    ]
  );
});

test('a lost heap that is not accepted runs nothing', async () => {
  const server = new Server();
  server.accepting = false;
  server.faults = [LOST];
  assert.deepEqual(kinds(await server.run('a', 'b')), ['dropped', 'dropped']);
  assert.deepEqual(server.sent, ['a']);
});

/** Let every promise that can go on do so. */
function turn(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve));
}
