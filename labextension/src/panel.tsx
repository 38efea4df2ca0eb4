/**
 * The side panel: what is so in the session that the person is at, and what can be done about it.
 *
 * It shows the server's words and makes no verdict of its own. Long tables begin with the worst and say how
 * much is left out.
 */
import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import * as React from 'react';

import type { Current } from './current';
import { keepFocus } from './focus';
import type { SessionRow } from './model';
import { Sections } from './sections';
import type { Deeds } from './sections';
import type { Sessions } from './sessions';

export interface PanelOptions {
  current: Current;
  sessions: Sessions;
  deeds: Deeds;
  open: (path: string) => void;
  trans: TranslationBundle;
}

export class SessionPanel extends ReactWidget {
  constructor(private readonly _options: PanelOptions) {
    super();
    this.addClass('krt-Panel');
    this.node.dataset.krtPanel = '';
    keepFocus(this.node);
    _options.current.changed.connect(this.update, this);
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._options.current.watch(true);
    this.update();
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus({ preventScroll: true });
  }

  protected override onAfterHide(message: Message): void {
    this._options.current.watch(false);
    super.onAfterHide(message);
  }

  protected override onBeforeDetach(message: Message): void {
    this._options.current.watch(false);
    super.onBeforeDetach(message);
  }

  protected override onUpdateRequest(message: Message): void {
    if (this.isVisible) {
      super.onUpdateRequest(message);
    }
  }

  protected override render(): React.ReactElement {
    const { current, sessions, deeds, open, trans } = this._options;
    const { feed } = current;
    if (feed === null) {
      return <Nowhere sessions={sessions} open={open} trans={trans} />;
    }
    const { overview, trouble } = feed;
    return (
      <div className="krt-Panel-body">
        <div role="status">
          {trouble && (
            <p className="krt-Panel-trouble" data-krt-trouble>
              {trans.__('The server does not answer: %1. What stands here may be old; it is asked again.', trouble)}
            </p>
          )}
          {!overview && !trouble && <p>{trans.__('Asking the session…')}</p>}
        </div>
        {overview && <Sections key={overview.session_id} overview={overview} feed={feed} deeds={deeds} trans={trans} />}
      </div>
    );
  }
}

/** Where there is no session: which there are. */
function Nowhere(props: {
  sessions: Sessions;
  open: (path: string) => void;
  trans: TranslationBundle;
}): React.ReactElement {
  const { trans } = props;
  const [rows, setRows] = React.useState<SessionRow[] | null>(null);
  React.useEffect(() => {
    let here = true;
    props.sessions.api.sessions().then(
      found => here && setRows(found),
      () => here && setRows([])
    );
    return () => {
      here = false;
    };
  }, []);
  const there = (rows ?? []).filter(row => row.path);
  return (
    <div className="krt-Panel-body" data-krt-section="none">
      <p>{trans.__('No session here. Open the notebook of one, or start a notebook with the kernel “Python 3 (session)”.')}</p>
      {there.length > 0 && (
        <ul className="krt-rows" aria-label={trans.__('Sessions')}>
          {there.map(row => (
            <li key={row.name}>
              <button className="krt-link" data-krt-session={row.name} onClick={() => props.open(row.path ?? '')}>
                {row.name}
              </button>{' '}
              <span className="krt-quiet">{row.state}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
