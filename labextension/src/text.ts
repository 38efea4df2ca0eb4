/**
 * How facts read. Pure: no document, no server.
 */
import type { CellTruth, Overview, Resource } from './model';

/** Worst first, as `krt status` prints them. */
export const TRUTHS = [
  'lost',
  'false',
  'drifted',
  'unknown',
  'partial',
  'edited',
  'stale',
  'unreadable',
  'not-run',
  'superseded',
  'recomputed',
  'restored',
  'live',
  'true'
];

const FINE = new Set(['live', 'superseded', 'recomputed', 'restored', 'true']);

/** Nothing is amiss with it. */
export function fine(truth: string): boolean {
  return FINE.has(truth);
}

export function badness(truth: string): number {
  const at = TRUTHS.indexOf(truth);
  return at < 0 ? TRUTHS.length : at;
}

/** The worst of them that are not fine, at most so many, in their order otherwise. */
export function worst<T extends { truth: string }>(rows: T[], most: number): T[] {
  return rows
    .filter(row => !fine(row.truth))
    .sort((a, b) => badness(a.truth) - badness(b.truth))
    .slice(0, most);
}

/** `3 lost, 4 live`, worst first; "" where there is nothing to count. */
export function countsOf(counts: Record<string, number> | undefined): string {
  return Object.entries(counts ?? {})
    .filter(([, n]) => n > 0)
    .sort(([a], [b]) => badness(a) - badness(b))
    .map(([truth, n]) => `${n} ${truth}`)
    .join(', ');
}

/** `1.5 MB`: decimal, as JupyterLab's file browser counts. */
export function bytes(n: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let at = 0;
  while (n >= 999.5 && at < units.length - 1) {
    n /= 1000;
    at += 1;
  }
  const digits = at === 0 || n >= 99.5 ? 0 : 1;
  return `${n.toFixed(digits).replace(/\.0$/, '')} ${units[at]}`;
}

/** What a cell's own metadata says of its last execution. */
export interface Ran {
  execution_id?: string;
  principal?: string;
  incarnation?: number;
  outcome?: string;
  status?: string;
  source_digest?: string;
}

export interface Badge {
  /** "" where nothing is to be said of it. */
  truth: string;
  /** "" where the viewer ran it, or nobody did. */
  principal: string;
  /** What a pointer and a screen reader are told. */
  title: string;
}

/**
 * What a cell's badge says.
 *
 * A cell that never ran has none. One that is under way says how far it is: it has no verdict yet. One that the
 * report does not name has the truth of most, which counts only for cells that ran. `live` needs no words.
 * `edited` is what the page sees of its own text, where it can.
 */
export function badgeOf(
  cell: CellTruth | undefined,
  ran: Ran,
  overview: Overview | null,
  edited?: boolean
): Badge {
  const way = wayOf(cell, ran);
  if (way) {
    const who = cell?.principal ?? ran.principal ?? '';
    return { truth: way, principal: who === overview?.principal ? '' : who, title: titleOf(way, undefined, who, ran) };
  }
  if (cell?.truth === 'edited' && edited === false) {
    const { was } = cell.evidence;
    cell = { ...cell, truth: typeof was === 'string' ? was : 'live', note: '' };
  }
  if (cell?.status) {
    // the document knows already that it ended; what is true of it comes with the next report
    cell = { ...cell, truth: 'live', note: '' };
  }
  const executed = Boolean(ran.execution_id ?? cell?.execution_id);
  let truth = cell?.truth ?? (executed && overview ? overview.default_truth : '');
  if (edited && executed && truth !== 'edited') {
    truth = 'edited';
    cell = cell && { ...cell, note: '' };
  }
  const who = cell?.principal ?? ran.principal ?? '';
  const principal = executed && who !== overview?.principal ? who : '';
  const shown = truth === 'live' || (truth === 'not-run' && !executed) ? '' : truth;
  return { truth: shown, principal, title: titleOf(shown, cell, who, ran) };
}

/** `queued`, `running` or `blocked`; "" where it is none of them, or ended since the report was made. */
function wayOf(cell: CellTruth | undefined, ran: Ran): string {
  if (!cell?.status || (ran.outcome && cell.execution_id === ran.execution_id)) {
    return '';
  }
  return cell.status;
}

/** Nothing was ever run in it: no news, whatever a report counts it as. */
export function untouched(cell: CellTruth): boolean {
  return cell.truth === 'not-run' && !cell.execution_id;
}

/** Why the session is in its state, in a line. */
export function reason(why: Record<string, unknown>, clock: (iso: string) => string): string {
  const { principal, source, started_at, queued, blocked, kind, activity, names, evidence: found, ...rest } = why;
  const parts: string[] = [];
  if (typeof source === 'string' && typeof principal === 'string') {
    const since = typeof started_at === 'string' ? ` since ${clock(started_at)}` : '';
    parts.push(`${source} (${principal}${since})`);
  }
  if (typeof queued === 'number' && queued > 0) {
    parts.push(`${queued} queued`);
  }
  const doing = (activity as { doing?: unknown } | undefined)?.doing;
  if (typeof doing === 'string' && !blocked) {
    parts.push(doing);
  }
  if (typeof kind === 'string') {
    parts.push([kind, evidence(rest)].filter(Boolean).join(': '));
  }
  if (parts.length === 0) {
    delete rest.execution_id;
    delete rest.processes;
    parts.push(evidence(rest));
  }
  return parts.join(' · ');
}

function titleOf(truth: string, cell: CellTruth | undefined, who: string, ran: Ran): string {
  const lines: string[] = [];
  if (truth) {
    lines.push(`${truth}: ${MEANING[truth] ?? ''}`.replace(/: $/, ''));
  }
  const because = cell?.note;
  if (because) {
    lines.push(because);
  }
  if (who) {
    const incarnation = cell?.incarnation ?? ran.incarnation;
    lines.push(`run by ${who}${incarnation ? `, incarnation ${incarnation}` : ''}`);
  }
  return lines.join('\n');
}

/** docs/truth.md in a line each. */
const MEANING: Record<string, string> = {
  queued: 'it waits for its turn',
  running: 'it runs, so there is no verdict yet',
  blocked: 'it waits for input',
  superseded: 'later cells bound again all that it bound',
  stale: 'something it read has changed since',
  edited: 'the source is not the source that ran',
  partial: 'some of it happened',
  lost: 'what it bound went with an earlier incarnation',
  restored: 'what it bound was brought back',
  recomputed: 'what it bound was computed anew',
  unknown: 'nobody can know',
  'not-run': 'it has not run in this session'
};

/** For programs: digests, and places in the journal. */
const FOR_PROGRAMS = /(^|_)(digest|as_of|shown|seq|entry)$/;

/** Evidence of a name, resource or claim in a line; a cell's is put into words by the server. */
export function evidence(found: Record<string, unknown>): string {
  const parts: string[] = [];
  for (const [key, value] of Object.entries(found)) {
    if (FOR_PROGRAMS.test(key)) {
      continue;
    }
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') {
      parts.push(`${key}: ${value}`);
    } else if (Array.isArray(value)) {
      const words = value.map(one => (typeof one === 'object' && one !== null ? nameOf(one) : String(one)));
      parts.push(`${key}: ${words.filter(Boolean).join(', ') || 'none'}`);
    } else if (typeof value === 'object' && value !== null) {
      parts.push(`${key}: ${Object.keys(value).join(', ')}`);
    }
  }
  const line = parts.join('; ');
  return line.length > 300 ? `${line.slice(0, 299)}…` : line;
}

function nameOf(one: object): string {
  const { name, reason, text } = one as Record<string, unknown>;
  return String(name ?? reason ?? text ?? '');
}

/** The line that names a resource. */
export function resource(row: Resource): string {
  const field = (name: string) => (row[name] === undefined || row[name] === null ? '' : String(row[name]));
  switch (row.kind) {
    case 'process': {
      const command = Array.isArray(row.command) ? row.command.join(' ') : field('command');
      const ended = field('exit_status') ? ` (exit ${field('exit_status')})` : '';
      return `${field('pid')} ${command || field('source')}${ended}`.trim();
    }
    case 'socket':
      return `${field('protocol')} ${field('address')}:${field('port')} ${field('state')}`.trim();
    case 'file':
      return `${field('path')} (${field('mode')})`;
    case 'env':
      return `${field('name')} ${field('value')}`.trim();
    default:
      return field('path') || field('name') || row.kind;
  }
}

/** A cell's verdict, as a pointer is told of it. */
export function titleOfCell(cell: CellTruth): string {
  return titleOf(cell.truth, cell, cell.principal ?? '', {});
}
