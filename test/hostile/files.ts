/** File calls on what an attacker has put where they go. */
import assert from 'node:assert/strict'
import { inside, refused, type Target, type Try } from './target.ts'

const at = (path: string, more = '') => `files?path=${encodeURIComponent(path)}${more}`

/** A read that gives no byte of the host or of another's. */
function read(name: string, path: string, statuses: readonly number[], prepare = 'true'): Try {
  return {
    name: `read ${name}`,
    run: async (target) => {
      await inside(target, prepare)
      const answer = await target.attacker.raw('GET', `/api/sandboxes/${target.sandboxId}/${at(path, '&user=sandbox')}`)
      refused(answer, statuses)
    },
  }
}

function write(name: string, path: string, statuses: readonly number[], prepare = 'true'): Try {
  return {
    name: `write ${name}`,
    run: async (target) => {
      await inside(target, prepare)
      const { attacker, sandboxId } = target
      const answer = await attacker.raw('PUT', `/api/sandboxes/${sandboxId}/${at(path, '&user=sandbox')}`, {
        body: Buffer.from('owned'),
      })
      refused(answer, statuses)
      assert.equal((await inside(target, 'cat /etc/shadow /etc/passwd | grep -c owned || true')).stdout.trim(), '0')
    },
  }
}

const link = (to: string) => `rm -rf /tmp/link; ln -sfn ${to} /tmp/link`

export const fileTries: Try[] = [
  read('a path that is relative', 'etc/passwd', [400]),
  read('an empty path', '', [400]),
  read('a path with a NUL', '/etc/\0passwd', [400]),
  read('a path of 10 000 characters', `/${'a'.repeat(10_000)}`, [400, 404, 414]),
  read('a name of 300 characters', `/tmp/${'a'.repeat(300)}`, [400, 404]),
  read('a thousand folders deep', '/a'.repeat(1000), [400, 404]),
  read("root's file as a user", '/etc/shadow', [403]),
  read("root's file behind a user's link", '/tmp/link', [403], link('/etc/shadow')),
  read("root's file behind a folder that is a link", '/tmp/link/shadow', [403], link('/etc')),
  read('the files of the first process', '/proc/1/root/etc/shadow', [400, 403, 404]),
  read('descriptors of the first process', '/proc/1/fd/3', [400, 403, 404]),
  read(
    'memory of the first process',
    '/proc/1/mem',
    [400, 403, 404, 500].filter((status) => status !== 500),
  ),
  read('a link to itself', '/tmp/link', [400, 404, 409], 'rm -rf /tmp/link; ln -s /tmp/link /tmp/link'),
  read('a pipe', '/tmp/pipe', [400], 'rm -f /tmp/pipe; mkfifo -m 666 /tmp/pipe'),
  read('a device', '/dev/zero', [400]),
  read('a terminal', '/dev/tty', [400, 403, 404]),
  read(
    'a socket',
    '/tmp/socket',
    [400, 403],
    `rm -f /tmp/socket; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/tmp/socket")'`,
  ),
  read('a folder as a file', '/etc', [400, 409]),
  write("root's file as a user", '/etc/passwd', [403]),
  write("over root's file behind a link", '/tmp/link', [403], link('/etc/passwd')),
  write('in a folder behind a link', '/tmp/link/shadow', [403], link('/etc')),
  write('into /proc', '/proc/sys/kernel/core_pattern', [400, 403, 404]),
  write('into /sys', '/sys/kernel/uevent_helper', [400, 403, 404]),
  write('into the folder of Atoll', '/.atoll/guest', [400, 403, 404, 409]),
  write('over a folder', '/etc', [400, 403, 409]),
  write('below a file', '/etc/passwd/a', [400, 404, 409]),
  {
    name: 'a link that is swapped while files are read and written leads nowhere',
    run: async (target: Target) => {
      const { attacker, sandboxId } = target
      const swap = `rm -rf /tmp/s; mkdir -m 777 /tmp/s; cd /tmp/s; echo mine > a; chmod 666 a; end=$((SECONDS+4)); while [ $SECONDS -lt $end ]; do ln -sfn /etc/shadow b; mv -T b f 2>/dev/null; cp a c; mv -T c f; done`
      const swapping = inside(target, swap)
      for (let round = 0; round < 60; round += 1) {
        const got = await attacker.raw('GET', `/api/sandboxes/${sandboxId}/${at('/tmp/s/f', '&user=sandbox')}`)
        assert.ok([200, 403, 404].includes(got.status), `${got.status} ${got.text}`)
        if (got.status === 200) assert.doesNotMatch(got.text, /root:/)
      }
      await swapping
    },
  },
  {
    name: 'names with line ends, quotes and bytes that are no UTF-8 are listed, and harm nobody',
    run: async (target: Target) => {
      await inside(
        target,
        `rm -rf /tmp/n; mkdir /tmp/n; cd /tmp/n; touch $'a\\nb' $'c"d' $'e\\xff' $'f\\tg' -- '--rf'; touch $'\\e[31mred'`,
      )
      const { attacker, sandboxId } = target
      const { status, body } = await attacker.raw('GET', `/api/sandboxes/${sandboxId}/files/list?path=/tmp/n`)
      assert.equal(status, 200)
      assert.equal((body as unknown[]).length, 6)
    },
  },
  {
    name: 'a folder of 20 000 names is listed or refused, and costs no neighbour an answer',
    slow: true,
    run: async (target: Target) => {
      await inside(target, 'mkdir -p /tmp/many; cd /tmp/many; seq 1 20000 | xargs touch')
      const { attacker, neighbour, sandboxId } = target
      const [listed, other] = await Promise.all([
        attacker.raw('GET', `/api/sandboxes/${sandboxId}/files/list?path=/tmp/many`),
        neighbour.get('/api/sandboxes'),
      ])
      assert.ok([200, 413].includes(listed.status), listed.text.slice(0, 200))
      assert.equal(other.status, 200)
    },
  },
]
