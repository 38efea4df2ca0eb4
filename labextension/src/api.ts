/**
 * Requests to `/kernel-runtime/api/`.
 *
 * A refusal is a `Refusal` with the server's words; a request whose answer was lost is `Unreachable`, and
 * whether it arrived is then not known: only what has a key is ever sent again. A long poll that is not answered
 * well after its time is up has lost its connection, where nothing told the browser so.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { Refusal, Unreachable } from './errors';
import type { Accepted, Claim, ExecutionState, Overview, SessionRow } from './model';

export interface ExecuteRequest {
  cell_id: string;
  source: string;
  /** One per press: the same key again runs nothing again. */
  key: string;
  client: string;
  accept?: boolean;
  /** How much of the shared document this page has, so that it is not run before what was typed has come. */
  document?: string;
  /** The execution before it in this page's queue: if that failed, this one is not to run. */
  after?: string;
}

/** Milliseconds that an answer may take beyond what it was asked to wait. */
const LATE = 15_000;

export class Api {
  constructor(private readonly _settings: ServerConnection.ISettings) {}

  sessions(): Promise<SessionRow[]> {
    return this._ask('sessions');
  }

  overview(kernelId: string, after: number | null, signal: AbortSignal): Promise<Overview> {
    const wait: Record<string, string> = after === null ? {} : { after: String(after), wait: '25' };
    return this._ask(`kernels/${kernelId}/overview`, { wait, signal });
  }

  execute(kernelId: string, request: ExecuteRequest): Promise<Accepted> {
    return this._ask(`kernels/${kernelId}/execute`, { body: request });
  }

  execution(kernelId: string, executionId: string, wait: number, signal?: AbortSignal): Promise<ExecutionState> {
    return this._ask(`kernels/${kernelId}/executions/${executionId}`, { wait: { wait: String(wait) }, signal });
  }

  answer(kernelId: string, executionId: string, text: string | null): Promise<unknown> {
    const body = text === null ? { eof: true } : { text };
    return this._ask(`kernels/${kernelId}/answer`, { body: { ...body, execution_id: executionId } });
  }

  act(kernelId: string, action: 'accept' | 'start' | 'interrupt' | 'restart', body: object = {}): Promise<unknown> {
    return this._ask(`kernels/${kernelId}/${action}`, { body });
  }

  async checkClaims(kernelId: string): Promise<Claim[]> {
    return (await this._ask<{ claims: Claim[] }>(`kernels/${kernelId}/claims/check`, { body: {} })).claims;
  }

  private async _ask<T>(
    path: string,
    how: { wait?: Record<string, string>; body?: object; signal?: AbortSignal } = {}
  ): Promise<T> {
    const url = URLExt.join(this._settings.baseUrl, 'kernel-runtime/api', path);
    const query = how.wait ? URLExt.objectToQueryString(how.wait) : '';
    const signals = [how.signal, how.wait?.wait && AbortSignal.timeout(1000 * Number(how.wait.wait) + LATE)];
    const init: RequestInit = {
      method: how.body ? 'POST' : 'GET',
      body: how.body ? JSON.stringify(how.body) : undefined,
      signal: AbortSignal.any(signals.filter(one => one instanceof AbortSignal))
    };
    let response: Response;
    let text: string;
    try {
      response = await ServerConnection.makeRequest(url + query, init, this._settings);
      text = await response.text();
    } catch (error) {
      if (how.signal?.aborted) {
        throw error;
      }
      throw new Unreachable(String(error));
    }
    const answer = parsed(text);
    if (response.ok && answer !== undefined) {
      return answer as T;
    }
    throw refused(response, answer);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function refused(response: Response, answer: unknown): Error {
  const told = (answer as { error?: unknown } | undefined)?.error;
  if (typeof told === 'object' && told !== null) {
    const { type, message, hint, ...fields } = told as Record<string, unknown>;
    return new Refusal(response.status, String(type), String(message), String(hint ?? ''), fields);
  }
  if (response.status >= 500) {
    return new Unreachable(`${response.status} ${response.statusText}`);
  }
  const message = (answer as { message?: unknown } | undefined)?.message ?? response.statusText;
  return new Refusal(response.status, 'HTTPError', String(message), '', {});
}
