/**
 * What the server tells of a session, as `kernel_runtime/jupyter/handlers.py` writes it.
 *
 * Facts only: a field that the server does not send is absent, never made up here.
 */

export interface SessionRow {
  name: string;
  session_id: string;
  state: string;
  incarnation: number;
  kernel_id: string | null;
  path: string | null;
}

export interface CellTruth {
  truth: string;
  /** `queued`, `running` or `blocked` while it is under way, and then `truth` is no verdict; else null. */
  status: string | null;
  outcome: string | null;
  execution_id: string | null;
  principal: string | null;
  incarnation: number | null;
  evidence: Record<string, unknown>;
  note: string;
}

export interface NameTruth {
  name: string;
  truth: string;
  type: string | null;
  bytes: number | null;
  bound_by: string | null;
  shares_with?: string[];
  evidence?: Record<string, unknown>;
}

/** A process, socket, file, terminal or setting; the fields beside these depend on `kind`. */
export interface Resource {
  kind: string;
  truth: string;
  started_by: string | null;
  [field: string]: unknown;
}

export interface Claim {
  id?: string;
  text: string;
  probe: string;
  truth: string;
  evidence?: Record<string, unknown>;
}

export interface PlanStep {
  action: string;
  target: string;
  reason: string;
  cost: string | null;
}

export interface Blocked {
  execution_id: string;
  cell_id: string | null;
  prompt: string;
  password: boolean;
  on: string;
  pid: number | null;
  since: string | null;
  command?: string[] | string | null;
}

export interface Overview {
  session: string;
  session_id: string;
  kernel_id: string;
  path: string | null;
  state: string;
  why: Record<string, unknown>;
  incarnation: number;
  head: number;
  heap_lost: boolean;
  principal: string;
  default_truth: string;
  cells: Record<string, CellTruth>;
  /** By truth, without those that are under way. */
  counts: Record<string, number>;
  under_way: Record<string, number>;
  names: NameTruth[];
  resources: Resource[];
  claims: Claim[];
  /** Something of an earlier life of the kernel is gone; `plan` is what can be done about that. */
  lost: boolean;
  plan: PlanStep[];
  blocked: Blocked | null;
  running: string | null;
}

/** How far an execution is, and how it ended. */
export interface ExecutionState {
  status: string;
  outcome: string | null;
  execution_count: number | null;
  blocked: unknown;
  error: { ename: string; evalue: string; traceback: string[] } | null;
}

export interface Accepted {
  execution_id: string;
  cell_id: string | null;
  recorded: boolean;
  cursor: number;
}

/** What of a heap is gone, in the report that a refusal carries. */
export interface LossReport {
  incarnation?: number;
  cells?: { cell_id: string; truth: string; evidence?: Record<string, unknown> }[];
  names?: { name: string; truth: string; type?: string | null; bytes?: number | null }[];
  counts?: Record<string, number>;
  name_counts?: Record<string, number>;
  plan?: PlanStep[];
}
