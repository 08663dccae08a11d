import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import { plainIssue } from './plain-issue.ts'

test('plain issue: what a value must be is said without the words of the validator', () => {
  const expectations: [z.ZodType, unknown, string][] = [
    [z.string(), undefined, 'is required'],
    [z.string(), 1, 'must be a string'],
    [z.int(), 'x', 'must be a number'],
    [z.int(), 1.5, 'must be a whole number'],
    [z.boolean(), 'x', 'must be true or false'],
    [z.array(z.string()), {}, 'must be a list'],
    [z.record(z.string(), z.string()), [], 'must be an object'],
    [z.int().max(5), 6, 'must be at most 5'],
    [z.number().positive(), 0, 'must be more than 0'],
    [z.string().min(1), '', 'must not be empty'],
    [z.string().max(2), 'abc', 'must have at most 2 characters'],
    [z.array(z.int()).max(1), [1, 2], 'must have at most 1 entries'],
    [z.enum(['a', 'b']), 'c', 'must be one of "a", "b"'],
    [z.literal('a'), 'c', 'must be "a"'],
    [z.string().regex(/^a/), 'b', 'must match /^a/'],
    [z.string().regex(/^a/, 'must begin with a'), 'b', 'must begin with a'],
    [z.union([z.string(), z.int()]), true, 'has none of the allowed forms'],
    [
      z.discriminatedUnion('a', [z.object({ a: z.literal('x') }), z.object({ a: z.literal('y') })]),
      {},
      'must be one of "x", "y"',
    ],
    [z.url(), 'b', 'must be a valid url'],
  ]
  for (const [schema, value, text] of expectations) {
    assert.equal(schema.safeParse(value, { error: plainIssue }).error?.issues[0]?.message, text)
  }
})
