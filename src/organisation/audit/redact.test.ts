import assert from 'node:assert/strict'
import { test } from 'node:test'
import { processorTime } from '../../lib/testing/processor-time.ts'
import { redactArguments, redactText, redactValue } from './redact.ts'

const secret = 'Zx9Qw7Rt5Yp3Lk1M'

/** Each shows the secret in another way. */
const texts = [
  `mysql -p${secret} db`,
  `mysql --password=${secret}`,
  `mysql --password ${secret}`,
  `export API_KEY=${secret}`,
  `TOKEN=${secret} ./run`,
  `PGPASSWORD='${secret}' psql`,
  `DB_PASSWORD="${secret}" run`,
  `curl -H "Authorization: Bearer ${secret}"`,
  `curl -H 'X-Api-Key: ${secret}'`,
  `curl -u admin:${secret} https://example.com`,
  `curl --user admin:${secret} https://example.com`,
  `git clone https://user:${secret}@github.com/a/b`,
  `git clone https://${secret}@github.com/a/b`,
  `postgres://u:${secret}@db/app`,
  `redis-cli --auth ${secret}`,
  `aws configure set aws_secret_access_key ${secret}`,
  `curl https://example.com/?access_key=${secret}`,
  `curl "https://example.com/a?x=1&key=${secret}"`,
  `curl https://example.com/a;x=1?sig=${secret}#top`,
  `curl -uadmin:${secret} https://example.com`,
  `curl --user=admin:${secret} https://example.com`,
  `run a=b=token=${secret}`,
  `sshpass -p ${secret} ssh host`,
  `docker login --password ${secret}`,
  `secret: ${secret}`,
  `{"token":"${secret}"}`,
  `cookie=${secret}`,
  `--client-secret=${secret}`,
  `npm config set //registry/:_authToken=${secret}`,
]

const forms = [
  'sk-ant-api03-abcdefghijklmnopqrstuvwx',
  'ghp_abcdefghijklmnopqrstuvwxyz0123456789',
  'github_pat_11ABCDEFG0abcdefghijklmnop',
  'glpat-abcdefghij0123456789',
  'xoxb-123456789012-abcdefghijkl',
  'npm_abcdefghijklmnopqrstuvwxyz0123456789',
  'AKIAIOSFODNN7EXAMPLE',
  'AIzaSyA1234567890abcdefghijklmnopqrstuv',
  'hf_abcdefghijklmnopqrstuvwxyz',
  'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-DEF_123',
  `atoll_${'0a'.repeat(24)}`,
  `atoll_op_${'0a'.repeat(24)}`,
  `pvt_${'aZ9'.repeat(15)}`,
  `moment_${'aZ9'.repeat(15)}`,
  'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  'sk_live_abcdefghijklmnop1234',
  '-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----',
  'hooks.slack.com/services/T00/B00/abcdefgh12345678',
  'discord.com/api/webhooks/1234/abcdefgh_12345678',
  'dckr_pat_abcdefghijklmnopqrstuv',
  'SG.abcdefghijklmnopqrst.abcdefghijklmnopqrst',
]

test('redact: no secret of a command line is kept', () => {
  for (const text of texts) assert.ok(!redactText(text).includes(secret), redactText(text))
})

test('redact: no text with the form of a secret is kept, wherever it stands', () => {
  for (const form of forms) {
    assert.ok(!redactText(`run ${form} now`).includes(form), form)
    assert.ok(!JSON.stringify(redactValue({ a: [{ b: form }] })).includes(form), form)
  }
})

test('redact: the argument behind a flag of a secret is one', () => {
  assert.deepEqual(redactArguments(['login', '--password', secret, '--name', 'x']), [
    ...['login', '--password', '[redacted]', '--name', 'x'],
  ])
  assert.deepEqual(redactArguments(['-u', `me:${secret}`]), ['-u', '[redacted]'])
  assert.deepEqual(redactArguments(['sshpass', '-p', secret, 'ssh']), ['sshpass', '-p', '[redacted]', 'ssh'])
  assert.deepEqual(redactArguments(['set', 'secret_access_key', secret]), ['set', 'secret_access_key', '[redacted]'])
})

test('redact: fields with the name of a secret are hidden whole', () => {
  const shown = redactValue({ apiKey: secret, password: { deep: secret }, accessToken: secret, name: 'web' })
  assert.deepEqual(shown, { apiKey: '[redacted]', password: '[redacted]', accessToken: '[redacted]', name: 'web' })
})

test('redact: ordinary commands stay as they are', () => {
  for (const text of [
    'npm ci',
    'ls -la /tmp',
    'python -m http.server 3000',
    'git commit -m "pass the tests"',
    'cat a=b',
  ])
    assert.equal(redactText(text), text)
})

test('redact: long texts and lists are cut, and hostile ones cost little', () => {
  assert.ok(redactText('x'.repeat(100_000)).length < 600)
  assert.equal(redactArguments(Array.from({ length: 1000 }, () => 'a')).length, 65)
  const shown = redactArguments(Array.from({ length: 60 }, () => 'a='.repeat(1024)))
  assert.deepEqual([shown.length, shown.at(-1)], [9, '… 52 more'])
  const usedMs = processorTime()
  for (const text of [
    '-'.repeat(50_000),
    'a'.repeat(1_000_000),
    'a:'.repeat(500_000),
    'a='.repeat(50_000),
    `--${'a-'.repeat(20_000)}`,
    ' -p'.repeat(30_000),
  ])
    redactText(text)
  assert.ok(usedMs() < 2000)
})
