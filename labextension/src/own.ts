/** Executions that this page asked for: what they show was asked for by who looks at it. */
export class Own {
  add(executionId: string): void {
    this._ids.add(executionId);
  }

  has(executionId: unknown): boolean {
    return typeof executionId === 'string' && this._ids.has(executionId);
  }

  private _ids = new Set<string>();
}
