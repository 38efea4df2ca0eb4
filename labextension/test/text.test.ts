import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { CellTruth, Overview } from '../src/model';
import {
  badgeOf,
  bytes,
  countsOf,
  evidence,
  reason,
  resource,
  untouched,
  worst
} from '../src/text';

const viewer = { principal: 'human:ann', default_truth: 'live' } as Overview;

function cell(truth: string, principal: string, evidence: Record<string, unknown> = {}, note = ''): CellTruth {
  return { truth, status: null, principal, outcome: 'ok', execution_id: 'e', incarnation: 2, evidence, note };
}

test('a cell that the viewer ran and that is live has no badge', () => {
  assert.deepEqual(badgeOf(undefined, { execution_id: 'e', principal: 'human:ann' }, viewer), {
    truth: '',
    principal: '',
    title: 'run by human:ann'
  });
});

test('a cell that never ran has none, whatever most are', () => {
  const badge = badgeOf(undefined, {}, { ...viewer, default_truth: 'lost' });
  assert.deepEqual([badge.truth, badge.principal], ['', '']);
});

test('a cell that the report does not name has the truth of most', () => {
  const badge = badgeOf(undefined, { execution_id: 'e', principal: 'agent:p' }, { ...viewer, default_truth: 'lost' });
  assert.deepEqual([badge.truth, badge.principal], ['lost', 'agent:p']);
});

test('truth, reason and who ran it are told', () => {
  const badge = badgeOf(cell('stale', 'agent:p', {}, 'b was changed by e2'), {}, viewer);
  assert.deepEqual([badge.truth, badge.principal], ['stale', 'agent:p']);
  assert.equal(
    badge.title,
    'stale: something it read has changed since\nb was changed by e2\nrun by agent:p, incarnation 2'
  );
});

test('a cell under way says how far it is, also where it is the viewer’s own: there is no verdict yet', () => {
  for (const status of ['queued', 'running', 'blocked']) {
    const told = { ...cell('unknown', 'human:ann'), status };
    const badge = badgeOf(told, { execution_id: 'e' }, viewer);
    assert.deepEqual([badge.truth, badge.principal], [status, '']);
  }
  assert.equal(badgeOf(cell('unknown', 'human:ann', {}), {}, viewer).truth, 'unknown');
});

test('a cell that the document knows to have ended runs no more, whatever an older report says', () => {
  const ended = { execution_id: 'e', principal: 'human:ann', outcome: 'ok' };
  const running = { ...cell('unknown', 'human:ann'), status: 'running' };
  assert.equal(badgeOf(running, ended, viewer).truth, '');
  assert.equal(badgeOf(running, { ...ended, execution_id: 'before' }, viewer).truth, 'running');
});

test('a cell in which nothing ever ran is no news', () => {
  const never = { ...cell('not-run', ''), execution_id: null };
  assert.ok(untouched(never));
  assert.equal(untouched(cell('not-run', 'agent:p')), false);
});

test('what the page sees of its own text goes before what the file says', () => {
  const told = cell('edited', 'human:ann', { was: 'stale' }, 'was stale; the notebook’s source differs');
  assert.equal(badgeOf(told, {}, viewer).truth, 'edited');
  assert.equal(badgeOf(told, {}, viewer, false).truth, 'stale');
  const ran = { execution_id: 'e', principal: 'human:ann' };
  assert.equal(badgeOf(undefined, ran, viewer, true).truth, 'edited');
  assert.equal(badgeOf(undefined, ran, viewer, false).truth, '');
  assert.equal(badgeOf(undefined, {}, viewer, true).truth, '');
});

test('a cell that runs while the file has older text is under way, not edited', () => {
  const told = { ...cell('edited', 'human:ann', { was: 'unknown' }), status: 'blocked' };
  assert.equal(badgeOf(told, {}, viewer, false).truth, 'blocked');
});

test('without an overview who ran it is told all the same', () => {
  assert.equal(badgeOf(undefined, { execution_id: 'e', principal: 'agent:p' }, null).principal, 'agent:p');
});

test('evidence is facts and reasons, not digests', () => {
  assert.equal(
    evidence({ digest: 'f00', as_of: 7, exists: true, reads: ['a', 'b'], last: { truth: 1 }, listening: [] }),
    'exists: true; reads: a, b; last: truth; listening: none'
  );
  assert.ok(evidence({ text: 'x'.repeat(1000) }).length <= 300);
});

test('why a session is as it is', () => {
  const at = () => '12:00';
  assert.equal(
    reason({ execution_id: 'e', principal: 'agent:p', source: 'train()', started_at: 't', queued: 2 }, at),
    'train() (agent:p since 12:00) · 2 queued'
  );
  assert.equal(reason({ entry: 7, kind: 'KernelDied', signal: 9 }, at), 'KernelDied: signal: 9');
  assert.equal(reason({}, at), '');
});

test('counts are worst first and leave out nothing that is there', () => {
  assert.equal(countsOf({ live: 4, stale: 1, lost: 0, edited: 2 }), '2 edited, 1 stale, 4 live');
  assert.equal(countsOf(undefined), '');
});

test('the worst that are not fine', () => {
  const rows = ['live', 'stale', 'lost', 'true', 'partial'].map(truth => ({ truth }));
  assert.deepEqual(
    worst(rows, 2).map(row => row.truth),
    ['lost', 'partial']
  );
});

test('sizes are short', () => {
  assert.deepEqual([0, 999, 1000, 1500, 999_949, 999_950, 5e12].map(bytes), [
    '0 B',
    '999 B',
    '1 kB',
    '1.5 kB',
    '1 MB',
    '1 MB',
    '5 TB'
  ]);
});

test('a resource is named by what it is', () => {
  const row = (kind: string, more: object) => ({ kind, truth: 'true', started_by: null, ...more });
  assert.equal(resource(row('process', { pid: 7, command: ['sleep', '9'] })), '7 sleep 9');
  assert.equal(resource(row('process', { pid: 7, command: 'sleep 9', exit_status: 1 })), '7 sleep 9 (exit 1)');
  assert.equal(
    resource(row('socket', { protocol: 'tcp', address: '127.0.0.1', port: 80, state: 'listening' })),
    'tcp 127.0.0.1:80 listening'
  );
  assert.equal(resource(row('file', { path: '/a', mode: 'write' })), '/a (write)');
});
