import assert from 'node:assert/strict'
import { test } from 'node:test'
import { hostPattern } from './host-pattern.ts'

test('host pattern: names are in lower case and punycode, without the dot at the end', () => {
  for (const [given, pattern] of [
    ['API.Example.COM', 'api.example.com'],
    ['example.com.', 'example.com'],
    ['*.Example.com', '*.example.com'],
    ['*', '*'],
    ['bücher.example', 'xn--bcher-kva.example'],
    ['*.Bücher.example', '*.xn--bcher-kva.example'],
    ['ｅxample.com', 'example.com'],
    ['localhost', 'localhost'],
    ['a_b.example.com', 'a_b.example.com'],
  ])
    assert.equal(hostPattern(given!), pattern, given)
})

test('host pattern: URLs, ports, addresses and other patterns are none', () => {
  for (const text of [
    ...['', ' ', '.', '..', 'a..b', '-a.example', 'a-.example', 'https://example.com', 'example.com/path'],
    ...['example.com:443', '*.', '*.*.com', 'a.*.com', 'ex*mple.com', '**', 'user@example.com', 'example.com?x'],
    ...['10.0.0.1', '*.10.0.0.1', '0x7f.1', '127.1', '1', '[::1]', '::1', 'a b.com', 'a\0.com', 'exa%6dple.com'],
    ...[`${'a'.repeat(64)}.com`, `${'a.'.repeat(130)}com`, 'example.com\n', '\u2024com'],
  ])
    assert.equal(hostPattern(text), undefined, JSON.stringify(text))
})
