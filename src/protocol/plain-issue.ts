import type { z } from 'zod'

type Issue = z.core.$ZodRawIssue

const types: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  record: 'an object',
  null: 'null',
}

/** What a value must be, in words that complete "timeout: …"; undefined where those of Zod stay. The message of a schema goes before it. */
export function plainIssue(issue: Issue): string | undefined {
  switch (issue.code) {
    case 'invalid_type':
      if (issue.input === undefined) return 'is required'
      return `must be ${types[issue.expected] ?? issue.expected}`
    case 'too_big':
      return `must ${sizeOf(issue.origin, issue.inclusive === false ? 'less than' : 'at most', issue.maximum)}`
    case 'too_small':
      if (issue.origin !== 'number' && issue.origin !== 'int' && Number(issue.minimum) === 1) return 'must not be empty'
      return `must ${sizeOf(issue.origin, issue.inclusive === false ? 'more than' : 'at least', issue.minimum)}`
    case 'invalid_value':
      return oneOf(issue.values)
    case 'invalid_format':
      return issue.format === 'regex' ? `must match ${issue.pattern}` : `must be a valid ${issue.format}`
    case 'invalid_union':
      return Array.isArray(issue['options']) ? oneOf(issue['options']) : 'has none of the allowed forms'
    case 'not_multiple_of':
      return `must be a multiple of ${issue.divisor}`
    case 'custom':
    case 'invalid_element':
    case 'invalid_key':
    case 'unrecognized_keys':
    default:
      return undefined
  }
}

function oneOf(values: readonly unknown[]): string {
  return `must be ${values.length > 1 ? 'one of ' : ''}${values.map((value) => JSON.stringify(value)).join(', ')}`
}

function sizeOf(origin: string, bound: string, size: number | bigint): string {
  switch (origin) {
    case 'string':
      return `have ${bound} ${size} characters`
    case 'array':
    case 'set':
      return `have ${bound} ${size} entries`
    case 'object':
    case 'record':
    case 'map':
      return `have ${bound} ${size} fields`
    default:
      return `be ${bound} ${size}`
  }
}
