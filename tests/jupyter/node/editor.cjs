// What VS Code's Jupyter extension does with an existing server, through the library that it does it with.
//
// Its kernel picker lists the rows of /api/sessions, not the kernels; it connects to a row, without asking the
// server for anything, sends cells with the address of its own editor as their id, and closes its end when the
// notebook is closed: a kernel that it found running it never shuts down. What a cell puts out it takes from all
// that the kernel says, until the cell is done.
//
// One JSON document a line on stdin, {"do": …}, and for each one line on stdout: its answer.
'use strict';

const readline = require('node:readline');
const { KernelManager, ServerConnection, SessionManager } = require('@jupyterlab/services');

console.log = console.debug = console.error; // the library's own words are no answers

const [base, token] = process.argv.slice(2);
const serverSettings = ServerConnection.makeSettings({
  baseUrl: base,
  appUrl: '',
  wsUrl: base.replace('http', 'ws'),
  token,
  appendToken: true,
  init: { cache: 'no-store', credentials: 'same-origin' }
});
const kernelManager = new KernelManager({ serverSettings });
const sessions = new SessionManager({ serverSettings, kernelManager });
let session = null;
const statuses = [];

function listed() {
  const found = [];
  for (const row of sessions.running()) {
    found.push({ path: row.path, kernel: row.kernel.id, name: row.kernel.name });
  }
  return found;
}

function follow() {
  session.connectionStatusChanged.connect((_, status) => statuses.push(status));
  session.statusChanged.connect((_, status) => statuses.push(status));
}

async function until(condition) {
  while (!condition()) {
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

// As it asks a kernel for what it wants to know itself.
async function askForItself(code) {
  const future = session.kernel.requestExecute({
    code,
    silent: false,
    stop_on_error: false,
    allow_stdin: true,
    store_history: false
  });
  await future.done;
}

async function run({ code, cell, answer }) {
  const metadata = { cellId: `vscode-notebook-cell:/home/ada/${session.path}#${cell ?? 'W0'}` };
  const request = { code, silent: false, stop_on_error: false, allow_stdin: true, store_history: true };
  const future = session.kernel.requestExecute(request, false, metadata);
  let text = '';
  let prompt = null;
  const hear = (_, { header, parent_header, content }) => {
    if (parent_header.msg_id !== future.msg.header.msg_id) {
      return;
    }
    text += header.msg_type === 'stream' ? content.text : '';
    text += header.msg_type === 'error' ? `${content.ename}: ${content.evalue}` : '';
  };
  session.kernel.iopubMessage.connect(hear);
  future.onStdin = ({ content }) => {
    prompt = content.prompt;
    session.kernel.sendInputReply({ value: answer ?? '', status: 'ok' });
  };
  const reply = await future.done;
  session.kernel.iopubMessage.disconnect(hear);
  return { status: reply.content.status, count: reply.content.execution_count, text, prompt };
}

const doing = {
  async list() {
    await sessions.ready;
    await sessions.refreshRunning();
    return listed();
  },
  async connect({ path }) {
    const model = await sessions.findByPath(path);
    session = sessions.connectTo({ model });
    follow();
    await until(() => session.kernel.connectionStatus === 'connected');
    await session.kernel.info;
    await askForItself("print('which version of ipywidgets is there?')");
    return { kernel: session.kernel.id };
  },
  async start({ path, kernel }) {
    session = await sessions.startNew({ path, name: path, type: 'notebook', kernel: { name: kernel } });
    follow();
    await session.kernel.info;
    return { kernel: session.kernel.id, path: session.path };
  },
  run,
  async again() {
    await until(() => session.kernel.connectionStatus === 'connected');
    return { statuses: statuses.splice(0), status: session.kernel.status };
  },
  async interrupt() {
    await session.kernel.interrupt();
    return {};
  },
  async restart() {
    await session.kernel.restart();
    return { kernel: session.kernel.id, statuses: statuses.splice(0) };
  },
  async close() {
    session.dispose();
    return {};
  },
  async shutdown() {
    await session.shutdown();
    return {};
  }
};

readline.createInterface({ input: process.stdin }).on('line', async line => {
  const asked = JSON.parse(line);
  let answer;
  try {
    answer = { ok: await doing[asked.do](asked) };
  } catch (error) {
    answer = { failed: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}).on('close', () => process.exit(0));
