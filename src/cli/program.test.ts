import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { glob, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import type { Command } from 'commander'
import { commandTable, foreignWords } from './command-table.ts'
import { commandNamed, makeWholeProgram, pathOf } from './program.ts'

const program = await makeWholeProgram()
const root = join(import.meta.dirname, '../..')

/** Those that do something, and not those that only have others below. */
function leavesOf(command: Command): Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap((sub) => leavesOf(sub))
}

/** What `--help` prints. */
function helpOf(command: Command): string {
  let text = ''
  command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp()
  return text
}

test('program: each file of a command is in the table under its own name', async () => {
  const names = Object.values(commandTable).flatMap((entries) => entries.map(({ name }) => name))
  assert.equal(new Set(names).size, names.length)
  const files = await Array.fromAsync(glob('commands/*.ts', { cwd: import.meta.dirname }))
  assert.deepEqual(names.toSorted(), files.map((file) => basename(file, '.ts')).toSorted())
  for (const name of names) assert.equal(commandNamed(program, [name]).name(), name)
  for (const word of Object.keys(foreignWords)) assert.equal(commandNamed(program, [word]), program, word)
})

test('program: each help has a description, the global flags and an example that is a command', () => {
  const problems: string[] = []
  for (const command of leavesOf(program)) {
    const path = pathOf(command)
    if (path === 'atoll help' || path === 'atoll complete') continue
    const help = helpOf(command)
    if (command.description() === '') problems.push(`${path} has no description`)
    if (!/Global options:[^]*--request-timeout[^]*--json/.test(help)) problems.push(`${path} lacks the global flags`)
    const [, lines = ''] = /\nExamples?:\n([^]*)$/.exec(help) ?? []
    const words = path.split(' ').slice(1)
    const isNamed = lines.split('\n').some((line) => {
      const [, rest = ''] = /\batoll ([^)|]*)/.exec(line) ?? []
      return words.length > 0 && commandNamed(program, rest.trim().split(' ')) === command
    })
    if (!isNamed) problems.push(`${path} has no example`)
  }
  assert.deepEqual(problems, [])
})

test('program: ls and list, rm and delete, get and show are one command, wherever one of them is', () => {
  const pairs = [
    ['ls', 'list'],
    ['rm', 'delete'],
    ['get', 'show'],
  ] as const
  const all = (command: Command): Command[] => [command, ...command.commands.flatMap((sub) => all(sub))]
  for (const command of all(program)) {
    for (const [one, other] of pairs) {
      const [byOne, byOther] = [one, other].map((word) => commandNamed(command, [word]))
      assert.equal(byOne, byOther, `${pathOf(command)} ${one}`)
    }
  }
})

test('program: a start reads the file of its own command alone', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'atoll-start-'))
  try {
    const filesOf = async (...argv: string[]) => {
      await promisify(execFile)(join(root, 'bin/atoll'), argv, { env: { ...process.env, NODE_V8_COVERAGE: dir } })
      const [report = ''] = await readdir(dir)
      const { result } = JSON.parse(await readFile(join(dir, report), 'utf8')) as { result: { url: string }[] }
      await rm(join(dir, report))
      return result
        .map(({ url }) => url)
        .filter((url) => url.includes('/src/cli/commands/') || /zod|modelcontext/.test(url))
    }
    assert.deepEqual(await filesOf('--version'), [])
    assert.deepEqual(await filesOf('help'), [])
    assert.deepEqual(
      (await filesOf('ls', '--help')).map((url) => basename(url)),
      ['ls.ts'],
    )
  } finally {
    await rm(dir, { recursive: true })
  }
})
