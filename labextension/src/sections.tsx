/**
 * The sections of the panel. Each says something also when there is nothing in it; only what there is to do
 * after a loss is not there without one.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Answer, whoAsks } from './answer';
import type { Overview } from './model';
import type { Feed } from './sessions';
import {
  badness,
  bytes,
  countsOf,
  evidence,
  fine,
  reason,
  resource,
  titleOfCell,
  untouched
} from './text';

/** What buttons do outside the panel. */
export interface Deeds {
  /** Show that cell; false where it is not in the open notebook. */
  reveal: (cellId: string) => boolean;
  /** Its first line, where the open notebook has it. */
  source: (cellId: string) => string;
  /** Ask, and restart. */
  restart: () => Promise<void>;
  /** Do it, and tell the person if it failed. */
  attempt: (what: () => Promise<unknown>) => Promise<void>;
}

interface Props {
  overview: Overview;
  feed: Feed;
  deeds: Deeds;
  trans: TranslationBundle;
}

const FIRST = 30;
const RUNNING = new Set(['busy', 'blocked', 'unresponsive']);
const ENDED = new Set(['dead', 'stopped']);

export function Sections(props: Props): React.ReactElement {
  return (
    <>
      <State {...props} />
      <Waiting {...props} />
      {(props.overview.lost || props.overview.heap_lost) && <Loss {...props} />}
      <NotLive {...props} />
      <Names {...props} />
      <Resources {...props} />
      <Claims {...props} />
    </>
  );
}

function Section(props: {
  id: string;
  title: string;
  count?: number;
  open?: boolean;
  children: React.ReactNode;
}): React.ReactElement {
  return (
    <details className="krt-Section" data-krt-section={props.id} open={props.open ?? true}>
      <summary>
        <h3>{props.title}</h3>
        {props.count !== undefined && <span className="krt-count">{props.count}</span>}
      </summary>
      {props.children}
    </details>
  );
}

function Rows<T>(props: { rows: T[]; row: (one: T, at: number) => React.ReactElement; trans: TranslationBundle }) {
  const [shown, setShown] = React.useState(FIRST);
  const left = props.rows.length - shown;
  return (
    <>
      <ul className="krt-rows">{props.rows.slice(0, shown).map(props.row)}</ul>
      {left > 0 && (
        <button className="krt-link" data-krt-action="more" onClick={() => setShown(shown * 4)}>
          {props.trans._n('%1 more', '%1 more', left)}
        </button>
      )}
    </>
  );
}

function Truth(props: { truth: string; why?: string }): React.ReactElement {
  return (
    <span className="krt-truth" data-krt-truth={props.truth} title={props.why}>
      {props.truth}
    </span>
  );
}

function Button(props: {
  action: string;
  label: string;
  title?: string;
  warn?: boolean;
  onClick: () => Promise<void>;
}): React.ReactElement {
  const [busy, setBusy] = React.useState(false);
  return (
    <button
      className={`jp-mod-styled ${props.warn ? 'jp-mod-warn' : 'jp-mod-accept'} krt-Button`}
      data-krt-action={props.action}
      title={props.title}
      aria-disabled={busy}
      onClick={async () => {
        if (busy) {
          return;
        }
        setBusy(true);
        try {
          await props.onClick();
        } finally {
          setBusy(false);
        }
      }}
    >
      {props.label}
    </button>
  );
}

function State({ overview, feed, deeds, trans }: Props): React.ReactElement {
  const cells = countsOf({ ...overview.counts, ...overview.under_way });
  const why = reason(overview.why, iso => new Date(iso).toLocaleTimeString());
  return (
    <section className="krt-Section" data-krt-section="state" data-krt-state={overview.state}>
      <h2>{overview.session}</h2>
      <p role="status" className="krt-state">
        <strong>{overview.state}</strong>
        {overview.incarnation > 0 && ` · ${trans.__('incarnation %1', overview.incarnation)}`}
        {cells && ` · ${trans.__('cells: %1', cells)}`}
      </p>
      {why && <p className="krt-quiet">{why}</p>}
      <p className="krt-quiet">{trans.__('You are %1.', overview.principal)}</p>
      <div className="krt-buttons">
        {RUNNING.has(overview.state) && (
          <Button
            action="interrupt"
            label={trans.__('Interrupt')}
            onClick={() => deeds.attempt(() => feed.api.act(feed.kernelId, 'interrupt'))}
          />
        )}
        {ENDED.has(overview.state) ? (
          <Button
            action="start"
            label={trans.__('Start kernel')}
            title={trans.__('The next incarnation, with an empty heap')}
            onClick={() => deeds.attempt(() => feed.api.act(feed.kernelId, 'start'))}
          />
        ) : (
          <Button
            action="restart"
            warn
            label={trans.__('Restart…')}
            title={trans.__('Asks first: everybody’s heap is lost')}
            onClick={() => deeds.restart()}
          />
        )}
      </div>
    </section>
  );
}

function Waiting({ overview, feed, trans }: Props): React.ReactElement {
  const { blocked } = overview;
  const who = blocked && whoAsks(blocked, trans);
  return (
    <Section id="waiting" title={trans.__('Waiting for input')} count={blocked ? 1 : 0}>
      {blocked ? (
        <>
          <Answer
            key={`${blocked.execution_id} ${blocked.since} ${blocked.prompt}`}
            api={feed.api}
            kernelId={feed.kernelId}
            blocked={blocked}
            trans={trans}
            place={trans.__('The session waits for input')}
            onSent={() => feed.refresh()}
          />
          {who && <p className="krt-quiet">{who}</p>}
        </>
      ) : (
        <p className="krt-quiet">{trans.__('Nothing waits for an answer.')}</p>
      )}
    </Section>
  );
}

function Loss({ overview, feed, deeds, trans }: Props): React.ReactElement {
  const ended = ENDED.has(overview.state);
  const { plan } = overview;
  return (
    <Section id="loss" title={trans.__('After a loss')} count={plan.length}>
      {overview.heap_lost && (
        <p data-krt-lost>
          {trans.__('The heap that you knew is gone. Your next cell is refused until you accept that.')}
        </p>
      )}
      {plan.length > 0 ? (
        <Rows
          rows={plan}
          trans={trans}
          row={(step, at) => (
            <li key={at} data-krt-plan={step.action}>
              <strong>{step.action}</strong> <Cell id={step.target} deeds={deeds} />
              <div className="krt-quiet">
                {step.reason}
                {step.cost ? ` (${step.cost})` : ''}
              </div>
            </li>
          )}
        />
      ) : (
        <p className="krt-quiet">
          {ended
            ? trans.__('No kernel lives. Its journal and notebook are whole.')
            : trans.__('Nothing is to be brought back.')}
        </p>
      )}
      <div className="krt-buttons">
        {overview.heap_lost && !ended && (
          <Button
            action="accept"
            label={trans.__('Accept')}
            title={trans.__('Go on in the heap as it is now')}
            onClick={() => deeds.attempt(() => feed.api.act(feed.kernelId, 'accept'))}
          />
        )}
        {ended && (
          <Button
            action="start"
            label={trans.__('Start kernel')}
            title={trans.__('The next incarnation, with an empty heap')}
            onClick={() => deeds.attempt(() => feed.api.act(feed.kernelId, 'start'))}
          />
        )}
      </div>
    </Section>
  );
}

function NotLive({ overview, deeds, trans }: Props): React.ReactElement {
  const rows = Object.entries(overview.cells)
    .filter(([, cell]) => !fine(cell.truth) && !cell.status && !untouched(cell))
    .sort(([, a], [, b]) => badness(a.truth) - badness(b.truth));
  const rest = fine(overview.default_truth) ? 0 : (overview.counts[overview.default_truth] ?? 0);
  return (
    <Section id="not-live" title={trans.__('Not live')} count={rows.length + rest}>
      {rest > 0 && (
        <p data-krt-truth={overview.default_truth}>
          {trans._n('%1 cell is %2', '%1 cells are %2', rest, overview.default_truth)}
          {rows.length > 0 && trans.__('; besides:')}
        </p>
      )}
      {rows.length > 0 && (
        <Rows
          rows={rows}
          trans={trans}
          row={([id, cell]) => (
            <li key={id} data-krt-cell={id} data-krt-truth={cell.truth}>
              <Truth truth={cell.truth} why={titleOfCell(cell)} /> <Cell id={id} deeds={deeds} />
              <div className="krt-quiet">{cell.note}</div>
            </li>
          )}
        />
      )}
      {rows.length + rest === 0 && <p className="krt-quiet">{trans.__('Every cell that ran still stands.')}</p>}
    </Section>
  );
}

/** A cell's first line, as a way to it; its id where the open notebook does not have it. */
function Cell(props: { id: string; deeds: Deeds }): React.ReactElement {
  const source = props.deeds.source(props.id);
  if (!source) {
    return <code>{props.id}</code>;
  }
  return (
    <button className="krt-link" title={props.id} onClick={() => props.deeds.reveal(props.id)}>
      <code>{source}</code>
    </button>
  );
}

function Names({ overview, trans }: Props): React.ReactElement {
  const rows = [...overview.names].sort(
    (a, b) => Number(fine(a.truth)) - Number(fine(b.truth)) || badness(a.truth) - badness(b.truth)
  );
  return (
    <Section id="names" title={trans.__('Names')} count={rows.length}>
      {rows.length > 0 ? (
        <Rows
          rows={rows}
          trans={trans}
          row={name => (
            <li key={name.name} data-krt-name={name.name} data-krt-truth={name.truth}>
              <Truth truth={name.truth} why={evidence(name.evidence ?? {})} /> <code>{name.name}</code>{' '}
              <span className="krt-quiet">
                {[
                  name.type,
                  name.bytes === null || name.bytes === undefined ? '' : bytes(name.bytes),
                  name.shares_with?.length ? trans.__('shares with %1', name.shares_with.join(', ')) : ''
                ]
                  .filter(Boolean)
                  .join(' · ')}
              </span>
            </li>
          )}
        />
      ) : (
        <p className="krt-quiet">
          {typeof overview.why.names === 'string'
            ? overview.why.names
            : trans.__('No name is known: nothing was bound yet, or the kernel does not tell.')}
        </p>
      )}
    </Section>
  );
}

function Resources({ overview, trans }: Props): React.ReactElement {
  const rows = overview.resources.filter(row => row.kind !== 'env');
  const env = overview.resources.filter(row => row.kind === 'env' && row.name === 'cwd');
  return (
    <Section id="resources" title={trans.__('Resources')} count={rows.length}>
      {[...rows, ...env].length > 0 && (
        <Rows
          rows={[...rows, ...env]}
          trans={trans}
          row={(row, at) => (
            <li key={at} data-krt-resource={row.kind} data-krt-truth={row.truth}>
              <Truth truth={row.truth} why={evidence((row.evidence as Record<string, unknown>) ?? {})} />{' '}
              <span className="krt-quiet">{row.kind}</span> <code>{resource(row)}</code>
            </li>
          )}
        />
      )}
      {rows.length === 0 && (
        <p className="krt-quiet">{trans.__('No process, port or open file that a cell left behind.')}</p>
      )}
    </Section>
  );
}

function Claims({ overview, feed, deeds, trans }: Props): React.ReactElement {
  const rows = overview.claims;
  return (
    <Section id="claims" title={trans.__('Claims')} count={rows.length}>
      {rows.length > 0 ? (
        <>
          <Rows
            rows={rows}
            trans={trans}
            row={(claim, at) => (
              <li key={claim.id ?? at} data-krt-claim={claim.text} data-krt-truth={claim.truth}>
                <Truth truth={claim.truth} /> {claim.text}
                <div className="krt-quiet">
                  <code>{claim.probe}</code> {evidence(claim.evidence ?? {})}
                </div>
              </li>
            )}
          />
          <Button
            action="check"
            label={trans.__('Check')}
            title={trans.__('Check every claim now')}
            onClick={() => deeds.attempt(() => feed.api.checkClaims(feed.kernelId))}
          />
        </>
      ) : (
        <p className="krt-quiet">
          {trans.__('No claim was made. `krt claim %1 TEXT --probe PROBE` makes one.', overview.session)}
        </p>
      )}
    </Section>
  );
}
