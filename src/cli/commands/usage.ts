import type { Command } from 'commander'
import { writeList } from '../list.ts'
import { examples } from '../options.ts'
import { writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { sizeText } from '../units.ts'

interface UsageFlags extends Flags {
  by: string
  from?: string
  to?: string
  tag?: string[]
  csv?: boolean
}

const pageMax = 500

export function addUsage(program: Command): void {
  program
    .command('usage')
    .description('print what the organisation has used, by default in the last thirty days')
    .addHelpText(
      'after',
      examples('atoll usage', 'atoll usage --by tag:team --from 2026-01-01', 'atoll usage --by session --csv'),
    )
    .option('--by <what>', 'sandbox, tag:KEY, key or session', 'sandbox')
    .option('--from <time>', 'begin, YYYY-MM-DD or RFC 3339')
    .option('--to <time>', 'end; default: now')
    .option('--tag <key=values...>', 'only sandboxes with one of these values (a,b) of the tag')
    .option('--csv', 'print CSV')
    .action(async (_options: UsageFlags, command: Command) => {
      const flags = command.optsWithGlobals<UsageFlags>()
      const { by: groupBy, from, to, tag = [], csv: isCsv = false } = flags
      const { usage } = await clientOf(flags)
      const query = { groupBy, from, to, tags: Object.fromEntries(tag.map(tagOf)), limit: pageMax }
      if (isCsv) {
        process.stdout.write(await usage.csv(query))
        return
      }
      const page = await usage.get(query)
      if (flags.json) return await writeJson(page)
      const items = page.items as Record<string, unknown>[]
      const number = (field: string) => (item: Record<string, unknown>) => rounded(item[field])
      const bytes = (field: string) => (item: Record<string, unknown>) => sizeText(Number(item[field] ?? 0))
      await writeList(
        items,
        flags,
        groupBy === 'session'
          ? {
              SESSION: (item) => item['sessionId'],
              MODEL: (item) => item['model'],
              INPUT: (item) => item['inputTokens'],
              OUTPUT: (item) => item['outputTokens'],
              USD: (item) => (item['isCostKnown'] === true ? rounded(item['modelUsd']) : 'unknown'),
            }
          : {
              [titleOf(groupBy)]: (item) => item['tagValue'] ?? item['sandboxId'] ?? item['keyId'] ?? '-',
              'MEMORY GB·H': (item) => rounded(Number(item['memoryGbSeconds']) / 3600),
              'CPU S': number('cpuUsedSeconds'),
              SENT: bytes('egressBytes'),
              USD: number('computeUsd'),
            },
      )
      if (groupBy !== 'session')
        await writeLine(
          `total ${rounded(page.total.memoryGbSeconds / 3600)} GB·h, ${rounded(page.total.computeUsd)} USD`,
        )
    })
}

function titleOf(groupBy: string): string {
  return groupBy.startsWith('tag:') ? groupBy.slice('tag:'.length).toUpperCase() : groupBy.toUpperCase()
}

function tagOf(text: string): [string, string[]] {
  const at = text.indexOf('=')
  if (at === -1) return [text, []]
  return [text.slice(0, at), text.slice(at + 1).split(',')]
}

function rounded(value: unknown): string {
  return typeof value === 'number' ? String(Math.round(value * 1000) / 1000) : ''
}
