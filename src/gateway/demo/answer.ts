import type { FixtureResponse } from '@copilotkit/aimock'
import { ToolCalls, type Conversation, type ToolUse } from './conversation.ts'
import { changeCard, changesMarker, demoPage, plainText, styles, titleOf } from './page.ts'

interface DemoAnswer {
  text: string
  calls: (ToolUse | undefined)[]
}

/** `run: <command>` on its own line makes the model run that command. */
const commandLine = /^[ \t]*run:[ \t]*(\S.*)$/m

/** Characters of a command's output that the final text repeats. */
const outputCharactersMax = 2000

/** The next answer of the demo model: see docs/use/agent.md § The demo model for its steps. */
export function answerDemo(conversation: Conversation, pagePort: number): FixtureResponse {
  const command = commandLine.exec(conversation.prompt)?.[1]
  const answer = command === undefined ? pageAnswer(conversation, pagePort) : commandAnswer(conversation, command)
  const calls = answer.calls.filter((call) => call !== undefined)
  const outputCharacters = answer.text.length + calls.reduce((total, call) => total + call.arguments.length, 0)
  const usage = { input_tokens: tokens(conversation.characterCount), output_tokens: tokens(outputCharacters) }
  const common = {
    model: 'demo',
    // Both wires' names of the same numbers.
    usage: { ...usage, prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens },
  }
  return { content: answer.text, ...(calls.length > 0 && { toolCalls: calls }), ...common }
}

function tokens(characters: number): number {
  return Math.max(1, Math.ceil(characters / 4))
}

function commandAnswer(conversation: Conversation, command: string): DemoAnswer {
  if (conversation.steps.length > 0) {
    const result = conversation.steps.flat().at(-1)?.result ?? ''
    return { text: `I ran \`${command}\`. It said:\n\n${result.slice(0, outputCharactersMax)}`, calls: [] }
  }
  const call = new ToolCalls(conversation).bash(command)
  if (!call) return { text: 'I have no tool that runs commands.', calls: [] }
  return { text: `I will run \`${command}\`.`, calls: [call] }
}

function pageAnswer(conversation: Conversation, port: number): DemoAnswer {
  const { prompt, steps, hasPage } = conversation
  const tools = new ToolCalls(conversation)
  const title = titleOf(hasPage ? (pagePrompts(conversation)[0] ?? prompt) : prompt)
  if (steps.length === 0) return hasPage ? change(conversation, tools) : build(conversation, tools, title)
  // After a failed edit the page is rewritten, which takes one more step.
  const hasChanged = steps[0]?.some((call) => /success|updated|has been|wrote|written/i.test(call.result)) ?? false
  const isRewritten = hasPage && !hasChanged
  if (isRewritten && steps.length === 1) return rewrite(conversation, tools, title)
  if (steps.length === (isRewritten ? 2 : 1)) {
    return { text: `Now I will make sure that port ${port} serves it.`, calls: [tools.bash(serveCommand(port))] }
  }
  const check = `curl -fsS --max-time 5 http://127.0.0.1:${port}/ | grep -o '<title>.*</title>'`
  if (steps.length === 2) return { text: 'Let me check what a visitor gets.', calls: [tools.bash(check)] }
  return { text: report(conversation, title, port), calls: [] }
}

function build({ prompt, tools: offered }: Conversation, tools: ToolCalls, title: string): DemoAnswer {
  const index = tools.write('index.html', demoPage(title, prompt, []))
  if (!index) {
    const names = offered.map((tool) => tool.name).join(', ') || 'none'
    return { text: `I would build a page, but I have no tool that writes files (my tools: ${names}).`, calls: [] }
  }
  return {
    text: `I will build a small page: “${title}”. First its files.`,
    calls: [index, tools.write('styles.css', styles(title))],
  }
}

function change(conversation: Conversation, tools: ToolCalls): DemoAnswer {
  const card = changeCard(conversation.prompt, Math.max(1, pagePrompts(conversation).length))
  const edit = tools.edit('index.html', changesMarker, `${card}\n      ${changesMarker}`)
  if (!edit) return rewrite(conversation, tools, titleOf(conversation.earlierPrompts[0] ?? ''))
  return { text: 'I will work that into the page.', calls: [edit] }
}

/** Writes the whole page with all changes, for a page whose marker is gone. */
function rewrite(conversation: Conversation, tools: ToolCalls, title: string): DemoAnswer {
  const [first = '', ...later] = pagePrompts(conversation)
  const content = demoPage(title, first, [...later, conversation.prompt])
  return { text: 'I will write the page anew.', calls: [tools.write('index.html', content)] }
}

/** Earlier prompts that are in the page. */
function pagePrompts({ earlierPrompts }: Conversation): string[] {
  return earlierPrompts.filter((text) => !commandLine.test(text))
}

function report(conversation: Conversation, title: string, port: number): string {
  const results = conversation.steps.flat().map((call) => call.result)
  const isServed = results.some((result) => result.includes(servedWords(port)))
  const what = conversation.hasPage
    ? `I changed the page “${title}”: ${plainText(conversation.prompt, 120)}`
    : `The page “${title}” is ready`
  if (isServed) return `${what}. It is live on port ${port}; write to me what you would like to change.`
  return `${what}, but port ${port} does not answer: ${results.at(-1)?.slice(-outputCharactersMax) || 'I have no tool that starts a server'}`
}

function servedWords(port: number): string {
  return `serving on port ${port}`
}

/** Starts a server in its own process session unless one answers, and waits for it. The command contains no input. */
function serveCommand(port: number): string {
  const url = `http://127.0.0.1:${port}/`
  return [
    `# a web server on port ${port}, unless one runs`,
    `if ! curl -fsS -o /dev/null --max-time 5 ${url} 2>/dev/null; then`,
    `  setsid nohup python3 -m http.server ${port} --bind 0.0.0.0 > /tmp/demo-server-${port}.log 2>&1 < /dev/null &`,
    'fi',
    'for attempt in $(seq 1 100); do',
    `  if curl -fsS -o /dev/null --max-time 5 ${url} 2>/dev/null; then echo "${servedWords(port)}"; exit 0; fi`,
    '  sleep 0.1',
    'done',
    `tail -n 20 /tmp/demo-server-${port}.log; exit 1`,
  ].join('\n')
}
