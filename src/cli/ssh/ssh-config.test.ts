import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { hostOf, hostOptions, targetOfHost } from './host-options.ts'
import { blockOf, withBlock } from '../commands/ssh-config.ts'

test('ssh-config: the block takes the place of the former one, and comes before what counts for all hosts', () => {
  const [first, second] = [blockOf([], {}), blockOf(['web'], {})]
  assert.match(first, /^# begin .*\nHost atoll-\* "!\*'\*"\n {2}ProxyCommand /)
  assert.match(second, /\nHost atoll-web atoll-\* "/)
  const own = 'Host *\n  ForwardAgent yes\n'
  assert.equal(withBlock('', first), first)
  assert.equal(withBlock(own, first), `${first}\n${own}`)
  assert.equal(withBlock(withBlock(own, first), second), `${second}\n${own}`)
  assert.equal(withBlock(withBlock(`a\n${first}b\n`, second), first), `a\n${first}b\n`)
  assert.throws(() => withBlock('# begin atoll ssh-config\nHost x\n', first), /without "# end/)
})

test('ssh-config: names of hosts are those of sandboxes alone, since they become words of a file and a name of one', () => {
  assert.equal(hostOf('sb-0123456789abcdef'), 'atoll-sb-0123456789abcdef')
  assert.equal(targetOfHost('atoll-web'), 'web')
  for (const name of ['', 'a b', 'a\nb', '../x', 'a/b', '*', '%h', 'Web']) {
    assert.throws(() => hostOf(name), /is no id or name of a sandbox/, name)
    assert.throws(() => targetOfHost(`atoll-${name}`), /is no id or name/, name)
  }
  assert.throws(() => targetOfHost('example.com'), /does not begin with atoll-/)
})

test('ssh-config: a context and a URL reach the proxy as words of a shell, and percent signs as they are', () => {
  const { ProxyCommand: command } = Object.fromEntries(hostOptions({ url: "http://a/'%h", context: 'my work' }))
  assert.ok(command?.endsWith(String.raw` --url 'http://a/'\''%%h' --context 'my work' ssh-proxy '%h'`), command)
})

test('ssh-config: a host name with the signs of a shell stays one word of it, whatever ssh lets pass', () => {
  const { ProxyCommand: command = '' } = Object.fromEntries(hostOptions({}))
  const { stdout } = spawnSync('sh', ['-c', `printf '<%s>' ${command.replace('%h', 'atoll-$(id);`id` "x')}`])
  assert.match(stdout.toString(), /<ssh-proxy><atoll-\$\(id\);`id` "x>$/)
  const dir = mkdtempSync(join(tmpdir(), 'atoll-ssh-'))
  try {
    writeFileSync(join(dir, 'config'), blockOf([], {}))
    const optionsOf = (host: string) => spawnSync('ssh', ['-F', join(dir, 'config'), '-G', host]).stdout.toString()
    assert.match(optionsOf('atoll-web'), /^proxycommand /m)
    assert.doesNotMatch(optionsOf("atoll-a'b"), /^proxycommand /m)
  } finally {
    rmSync(dir, { recursive: true })
  }
})
