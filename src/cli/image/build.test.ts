import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UsageError } from '../exit-codes.ts'
import { commandNamed, makeWholeProgram } from '../program.ts'

test('atoll image build: a flag of docker is answered with what serves here', async () => {
  const cases: [string[], RegExp][] = [
    [['-t', 'tools', '.'], /no flag -t: the name stands without it/],
    [['.', '--tag', 'tools'], /no flag -t: the name stands without it/],
    [['tools', '.', '--platform', 'linux/arm64'], /no flag --platform: a build is for the machine/],
    [['tools', '--pull', '.'], /no flag --pull: a tag is fetched once/],
    [['tools', '--push'], /"atoll image push"/],
  ]
  for (const [words, message] of cases) {
    const program = await makeWholeProgram()
    await assert.rejects(program.parseAsync(['image', 'build', ...words], { from: 'user' }), (error) => {
      assert.ok(error instanceof UsageError, words.join(' '))
      assert.match(error.message, message)
      return true
    })
  }
  const help = commandNamed(await makeWholeProgram(), ['image', 'build']).helpInformation()
  assert.doesNotMatch(help, /--platform|--pull|--tag/)
})
