import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../support/listen.ts'
import { hasProgram } from './debian-packages.ts'
import { PackageWorld } from './package-world.ts'

const startTimeoutMs = 10_000

/** nginx as a proxy in front of one port of this machine, with connections to it that it keeps; one worker for each core. */
export class Nginx {
  readonly port: number
  readonly #world: AsyncDisposable

  private constructor(port: number, world: AsyncDisposable) {
    this.port = port
    this.#world = world
  }

  static async isThere(): Promise<boolean> {
    return await hasProgram('usr/sbin/nginx')
  }

  static async start(upstreamPort: number): Promise<Nginx> {
    await using stack = new AsyncDisposableStack()
    const world = stack.use(await PackageWorld.open())
    const port = await freePort()
    const path = `${world.scratch}/nginx.conf`
    await writeFile(path, configOf(world.scratch, port, upstreamPort))
    const nginx = world.start(['/usr/sbin/nginx', '-p', world.scratch, '-e', 'stderr', '-c', path])
    const until = Date.now() + startTimeoutMs
    while (!(await accepts(port))) {
      if (nginx.exitCode !== null || Date.now() > until) throw new Error('nginx does not serve')
      await sleep(20)
    }
    return new Nginx(port, stack.move())
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#world[Symbol.asyncDispose]()
  }
}

function configOf(folder: string, port: number, upstreamPort: number): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
  return `
daemon off;
user root;
worker_processes auto;
pid ${folder}/nginx.pid;
events { worker_connections 1024; }
http {
  access_log off;
  ${temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join('\n  ')}
  upstream page {
    server 127.0.0.1:${upstreamPort};
    keepalive 16;
  }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://page;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
    }
  }
}
`
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}
