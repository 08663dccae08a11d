/**
 * Stands for `atoll-egress` in tests: keeps its frames in the file of its first argument, one a line, and answers them. The name of a sandbox says
 * what else it does. With `authority` as second argument it is that command.
 */
import { appendFileSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [file = '', command, mode] = process.argv.slice(2)

interface Frame {
  op: string
  seq: number
  sandbox?: string
}

function say(said: object | string): void {
  process.stdout.write(typeof said === 'string' ? said : `${JSON.stringify(said)}\n`)
}

function note(what: object): void {
  appendFileSync(file, `${JSON.stringify({ pid: process.pid, ...what })}\n`)
}

const entry = { op: 'entry', time: 1, decision: 'denied', protocol: 'tls', port: 443, sent: 1, received: 2, ms: 3 }

const acts: Record<string, (frame: Frame) => void> = {
  'sb-ends': () => process.exit(3),
  'sb-silent': () => undefined,
  'sb-refused': ({ seq }) => say({ op: 'error', seq, message: 'a plan without sense' }),
  'sb-endless': () => say('x'.repeat(70_000)),
  'sb-strange': ({ seq }) => {
    for (let line = 0; line < 1000; line += 1) say(`no frame ${line}\n`)
    say('null\n{"op":"entry","sandbox":7}\n[]\n{"op":"ok","seq":"1"}\n{"op":"ok","seq":999}\n')
    say({ op: 'ok', seq })
  },
  'sb-tells': ({ seq, sandbox }) => {
    say({ ...entry, sandbox, host: 'h'.repeat(300), path: 'p'.repeat(2000), secrets: ['A', 7], more: 'left out' })
    say({ ...entry, sandbox, port: 70_000 })
    say({ op: 'entries_dropped', sandbox, count: 5, sent: 6, received: 7 })
    say({ op: 'trouble', message: 'a name server does not answer' })
    // One line in two parts.
    const answer = JSON.stringify({ op: 'ok', seq })
    process.stdout.write(answer.slice(0, 5), () => setImmediate(() => say(`${answer.slice(5)}\n`)))
  },
}

if (command === 'authority') {
  const pem = (what: string) => `-----BEGIN ${what}-----\n\n-----END ${what}-----\n`
  say(mode === 'broken' ? '{"certificate":"' : { certificate: pem('CERTIFICATE'), key: pem('PRIVATE KEY') })
} else {
  const status = readFileSync('/proc/self/status', 'utf8')
  note({ op: 'began', status: status.split('\n').filter((line) => /^(Uid|Gid|Groups|Cap|NoNewPrivs)/.test(line)) })
  if (command === 'fails') {
    process.stderr.write('cannot listen: it is taken\n')
    process.exit(4)
  }
  createInterface({ input: process.stdin })
    .on('line', (line) => {
      const frame = JSON.parse(line) as Frame
      note(frame)
      const act = acts[frame.sandbox ?? '']
      if (act !== undefined && frame.op === 'put') return act(frame)
      if (command === 'refuses' && frame.op === 'start')
        return say({ op: 'error', seq: frame.seq, message: 'no such port' })
      say({ op: 'ok', seq: frame.seq })
      if (frame.op === 'start') say({ op: 'ready' })
    })
    .on('close', () => process.exit(0))
}
