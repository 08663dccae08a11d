/** Root in a sandbox, on its kernel, its network and its neighbours. */
import assert from 'node:assert/strict'
import { inside, type Target, type Try } from './target.ts'

/** A command that fails inside, whatever it says. */
function fails(name: string, script: string): Try {
  return {
    name: `inside: ${name}`,
    run: async (target) => {
      const { exitCode, stdout, stderr } = await inside(target, script)
      assert.notEqual(exitCode, 0, `${stdout}${stderr}`)
    },
  }
}

const call = (number: number, ...args: (number | string)[]) =>
  `python3 -c 'import ctypes,sys; c=ctypes.CDLL(None,use_errno=True); sys.exit(0 if c.syscall(${[number, ...args].join(',')})>=0 else 1)'`

export const escapeTries: Try[] = [
  fails('a module', 'insmod /dev/null || modprobe dummy'),
  fails('a mount of proc', 'mount -t proc proc /mnt'),
  fails('a mount of tmpfs', 'mount -t tmpfs tmpfs /mnt'),
  fails('a bind over another file', 'mount --bind /etc/passwd /etc/shadow'),
  fails('a remount of sysfs with writes', 'mount -o remount,rw /sys'),
  fails('a device of the disk', 'mknod /tmp/disk b 8 0'),
  fails('a device of memory', 'mknod /tmp/mem c 1 1'),
  fails('the clock', 'date -s 2001-01-01'),
  fails('a reboot', call(169, '0xfee1dead', 672274793, '0x1234567')),
  fails('a kexec', call(246, 0, 0, 0, 0)),
  fails('bpf', call(321, 0, 0, 0)),
  fails('perf events', call(298, 0, 0, -1, -1, 0)),
  fails('userfaultfd', call(323, 1)),
  fails('io_uring', call(425, 8, 0)),
  fails('keys of the kernel', call(250, 0, '0xfffffffd', 1)),
  fails('a handle of a file', call(304, -100, 0, 0)),
  fails(
    'another pid namespace from outside',
    'nsenter --target 1 --pid --mount --net true && [ "$(cat /proc/1/comm)" != guest ] && false',
  ),
  fails('settings of the kernel', 'echo x > /proc/sys/kernel/core_pattern'),
  fails('sysrq', 'echo c > /proc/sysrq-trigger'),
  fails(
    'its own limits',
    `for file in memory/memory.limit_in_bytes pids/pids.max memory.max pids.max sandbox/memory.max; do
      [ ! -e /sys/fs/cgroup/$file ] || ! echo 100000000000 > /sys/fs/cgroup/$file || exit 0
    done; exit 1`,
  ),
  fails('a group of its own', 'cd /sys/fs/cgroup/memory 2>/dev/null || cd /sys/fs/cgroup; mkdir mine'),
  fails(
    'a release agent',
    '! [ -e /sys/fs/cgroup/memory/release_agent ] && exit 1; echo /bin/true > /sys/fs/cgroup/memory/release_agent',
  ),
  fails('packets of its own making', `python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'`),
  fails('another address', 'ip address add 10.0.0.99/8 dev eth0'),
  fails('another route', 'ip route replace default via 127.0.0.1'),
  fails('rules for packets', 'nft add table inet mine || iptables -A OUTPUT -j DROP'),
  fails('core files', 'ulimit -c unlimited'),
  fails('more open files', 'ulimit -n 100000000'),
  fails('priority above others', 'nice -n -5 true 2>&1 | grep -q . && false || [ "$(nice -n -5 nice)" = -5 ]'),
  fails('a real-time class', 'chrt -f 50 true'),
  fails(
    'the host by its gateway',
    'for port in 22 4100 5432 111; do timeout 1 bash -c "exec 3<>/dev/tcp/$(ip route | sed -n "s/default via \\([0-9.]*\\).*/\\1/p")/$port" && exit 0; done; exit 1',
  ),
  {
    name: 'inside: a neighbour, by its address',
    run: async (target: Target) => {
      const { neighbour, neighbourId } = target
      const serve = { cmd: 'python3', args: ['-m', 'http.server', '8000', '--bind', '0.0.0.0'] }
      await neighbour.post(`/api/sandboxes/${neighbourId}/exec`, serve)
      const ask = { cmd: 'bash', args: ['-c', 'hostname -I'] }
      const { body } = await neighbour.post(`/api/sandboxes/${neighbourId}/exec/run`, ask)
      const address = (body as { stdout: string }).stdout.trim().split(' ')[0]
      const { exitCode } = await inside(target, `timeout 2 bash -c 'exec 3<>/dev/tcp/${address}/8000'`)
      assert.notEqual(exitCode, 0)
    },
  },
  {
    name: 'inside: what is masked is empty, and names of the host are not told',
    run: async (target: Target) => {
      const { server } = target
      const script =
        'cat /proc/keys /proc/locks /proc/partitions /proc/diskstats /proc/cmdline /proc/timer_list /proc/kcore 2>/dev/null | head -c 100; ls /sys/block /sys/class/net'
      const { stdout } = await inside(target, script)
      assert.doesNotMatch(stdout, /vda|loop\d|BOOT_IMAGE/)
      const { stdout: mounts } = await inside(target, 'cat /proc/self/mountinfo /proc/self/cgroup /proc/1/environ')
      assert.ok(!mounts.includes(server.dataDir), mounts.slice(0, 500))
    },
  },
  {
    name: 'inside: the metadata service tells of this sandbox alone, and takes no key',
    run: async (target: Target) => {
      const { stdout } = await inside(
        target,
        'curl -s -m 60 -H "X-API-Key: a" http://169.254.169.254/v1/status; curl -s -m 60 http://169.254.169.254/api/sandboxes',
      )
      assert.ok(stdout.includes(target.sandboxId) && !stdout.includes(target.neighbourId), stdout)
    },
  },
  {
    name: 'inside: files of root cannot be given to the host by a set-user-id program',
    run: async (target: Target) => {
      const { stdout } = await inside(target, 'cp /bin/id /tmp/id; chmod 4755 /tmp/id; su sandbox -c /tmp/id')
      assert.doesNotMatch(stdout, /euid=0/)
    },
  },
  {
    name: 'inside: who stops a thread of the first process holds up its own calls alone, and the sandbox can be deleted',
    run: async ({ attacker, neighbour, neighbourId }: Target) => {
      const { body } = await attacker.post('/api/sandboxes', { timeout: 0 })
      const { sandboxID: sandboxId } = body as { sandboxID: string }
      const trace = 'import ctypes, time; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0), flush=True); time.sleep(600)'
      await attacker.raw('POST', `/api/sandboxes/${sandboxId}/exec`, { body: { cmd: 'python3', args: ['-c', trace] } })
      for (let round = 0; round < 5; round += 1) {
        const { status } = await neighbour.post(`/api/sandboxes/${neighbourId}/exec/run`, { cmd: 'true' })
        assert.equal(status, 200)
      }
      const deleted = await attacker.delete(`/api/sandboxes/${sandboxId}`)
      assert.ok(deleted.status < 300, deleted.text)
    },
  },
  {
    name: 'hog: a fork bomb ends at the limit of the sandbox, and the neighbour works',
    slow: true,
    run: async (target: Target) => {
      const { attacker, neighbour, neighbourId, sandboxId } = target
      const bomb = { cmd: 'bash', args: ['-c', 'f() { f | f & }; f; sleep 3'], timeout: 5 }
      const [, other] = await Promise.all([
        attacker.raw('POST', `/api/sandboxes/${sandboxId}/exec/run`, { body: bomb }),
        neighbour.post(`/api/sandboxes/${neighbourId}/exec/run`, { cmd: 'true' }),
      ])
      assert.equal((other.body as { exitCode: number }).exitCode, 0)
      const again = await attacker.raw('POST', `/api/sandboxes/${sandboxId}/reboot`, { body: {} })
      assert.equal(again.status, 200, again.text)
    },
  },
  {
    name: 'hog: memory above the limit ends the process, not the neighbour',
    slow: true,
    run: async (target: Target) => {
      const { exitCode } = await inside(target, `python3 -c 'held = bytearray(8 << 30)'`)
      assert.notEqual(exitCode, 0)
      assert.equal((await inside(target, 'true')).exitCode, 0)
    },
  },
  {
    name: 'hog: a full disk is the own one',
    slow: true,
    run: async (target: Target) => {
      const { neighbour, neighbourId } = target
      const { exitCode } = await inside(target, 'head -c 100G /dev/zero > /root/full', 120)
      assert.notEqual(exitCode, 0)
      const body = { cmd: 'bash', args: ['-c', 'head -c 10M /dev/urandom > /root/mine && sync'] }
      const { body: other } = await neighbour.post(`/api/sandboxes/${neighbourId}/exec/run`, body)
      assert.equal((other as { exitCode: number }).exitCode, 0)
      await inside(target, 'rm -f /root/full')
    },
  },
  {
    name: 'hog: ten thousand empty files and as many descriptors',
    slow: true,
    run: async (target: Target) => {
      const { exitCode } = await inside(
        target,
        `mkdir -p /tmp/i; cd /tmp/i; seq 1 10000 | xargs touch; python3 -c '
held = []
try:
    while True: held.append(open("/dev/null"))
except OSError: print(len(held))'; rm -rf /tmp/i`,
        60,
      )
      assert.equal(exitCode, 0)
    },
  },
]
