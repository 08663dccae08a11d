import assert from 'node:assert/strict'
import { test } from 'node:test'
import { rulesOf, type ShownRule, textOfRule } from './egress-rules.ts'

test('rule of egress: a host with one range of ports is a word, all else is JSON that is read again', () => {
  const words: [ShownRule, string][] = [
    [{ host: '*.example.com' }, '*.example.com'],
    [{ host: 'api.example.com', ports: [[443, 443]] }, 'api.example.com:443'],
    [{ cidr: '198.51.100.0/24', ports: [[8000, 8010]] }, '198.51.100.0/24:8000-8010'],
    [{ host: 'a.example', inspect: false }, 'a.example'],
  ]
  for (const [rule, text] of words) {
    assert.equal(textOfRule(rule), text)
    assert.deepEqual(rulesOf(text), [text])
  }
  const text = textOfRule({
    host: 'a.example',
    ports: [
      [80, 80],
      [8000, 8010],
    ],
    methods: ['GET'],
  })
  assert.deepEqual(rulesOf(`\n ${text} \n`), [{ host: 'a.example', ports: ['80', '8000-8010'], methods: ['GET'] }])
})

test('rule of egress: a line that begins like JSON and is none is named', () => {
  assert.throws(() => rulesOf('a.example\n{"host":'), /This line is no JSON: \{"host":/)
})
