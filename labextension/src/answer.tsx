/**
 * A row that asks what a session asks: what it waits for, a box for the answer, End of input, Interrupt.
 *
 * The first answer wins, wherever it is given: the row goes when the session no longer asks. What is typed
 * into a secret's box is on this page only and in no history.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { Api } from './api';
import type { Blocked } from './model';

export interface AnswerProps {
  api: Api;
  kernelId: string;
  blocked: Blocked;
  trans: TranslationBundle;
  /** Where it stands, for a screen reader: there may be one in the panel and one below the cell. */
  place: string;
  /** Have the cursor in the box: only where the viewer ran the cell. */
  focus?: boolean;
  /** Escape: where the keyboard goes. */
  onLeave?: () => void;
  /** Something was sent: have a look. */
  onSent: () => void;
}

export function Answer(props: AnswerProps): React.ReactElement {
  const { api, kernelId, blocked, trans } = props;
  const [busy, setBusy] = React.useState(false);
  const box = React.useRef<HTMLInputElement>(null);
  React.useEffect(() => {
    if (props.focus) {
      box.current?.focus({ preventScroll: false });
    }
  }, []);
  const send = async (ask: () => Promise<unknown>) => {
    if (busy) {
      return;
    }
    setBusy(true);
    try {
      await ask();
      if (box.current) {
        box.current.value = '';
      }
    } catch (error) {
      Notification.warning(error instanceof Error ? error.message : String(error), { autoClose: 5000 });
    } finally {
      setBusy(false);
      props.onSent();
    }
  };
  const label = blocked.prompt.trim() || trans.__('Input');
  return (
    <form
      className="krt-Answer"
      data-krt-prompt={blocked.execution_id}
      aria-label={props.place}
      onSubmit={event => {
        event.preventDefault();
        const text = box.current?.value ?? '';
        void send(() => api.answer(kernelId, blocked.execution_id, text));
      }}
      onKeyDown={event => {
        // the notebook's own keys are not for here
        event.stopPropagation();
        if (event.key === 'Escape') {
          event.preventDefault();
          props.onLeave?.();
        }
      }}
    >
      <label className="krt-Answer-prompt">
        <span>{label}</span>
        <input
          ref={box}
          className="jp-mod-styled krt-Answer-box"
          type={blocked.password ? 'password' : 'text'}
          autoComplete={blocked.password ? 'new-password' : 'off'}
          spellCheck={false}
          readOnly={busy}
          data-krt-answer
        />
      </label>
      <button type="submit" className="jp-mod-styled jp-mod-accept" aria-disabled={busy} data-krt-action="answer">
        {trans.__('Answer')}
      </button>
      <button
        type="button"
        className="jp-mod-styled jp-mod-reject"
        aria-disabled={busy}
        title={trans.__('What waits reads end of file, as after Ctrl-D')}
        data-krt-action="eof"
        onClick={() => void send(() => api.answer(kernelId, blocked.execution_id, null))}
      >
        {trans.__('End of input')}
      </button>
      <button
        type="button"
        className="jp-mod-styled jp-mod-reject"
        aria-disabled={busy}
        title={trans.__('Interrupt the cell that waits')}
        data-krt-action="interrupt"
        onClick={() =>
          void send(() => api.act(kernelId, 'interrupt', { execution_id: blocked.execution_id }))
        }
      >
        {trans.__('Interrupt')}
      </button>
    </form>
  );
}

/** Who asks, where it is not the cell itself. */
export function whoAsks(blocked: Blocked, trans: TranslationBundle): string {
  if (!blocked.on.startsWith('terminal')) {
    return '';
  }
  const command = Array.isArray(blocked.command) ? blocked.command.join(' ') : (blocked.command ?? '');
  return trans.__('process %1 reads the terminal: %2', String(blocked.pid ?? '?'), command);
}
