/** How a request to the server fails. */

/** The server answered, and said no. `type` is the class of `kernel_runtime.errors`. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly type: string,
    message: string,
    readonly hint: string,
    readonly fields: Record<string, unknown>
  ) {
    super(message);
  }
}

/** No answer came, or one of something that stands in front of the server. */
export class Unreachable extends Error {}
