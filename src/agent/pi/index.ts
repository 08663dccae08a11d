import { mkdirSync, readFileSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import {
  AuthStorage,
  createAgentSession,
  DefaultResourceLoader,
  ModelRegistry,
  SessionManager,
  SettingsManager,
  VERSION,
  type AgentSession,
} from '@earendil-works/pi-coding-agent'
import type { Harness, HarnessSession, HarnessSettings } from '../harness.ts'
import { piModel } from './model.ts'
import { skillPaths } from '../skills.ts'
import { surroundings } from '../surroundings.ts'
import { allowedToolNames, ownTools } from './tools.ts'
import { PiTurn } from './turn.ts'

/** The default harness: pi's SDK in this process, its conversation in `<stateDir>/pi/conversation.jsonl`. */
export const piHarness: Harness = {
  name: 'pi',
  version: VERSION,

  async open(settings: HarnessSettings): Promise<HarnessSession> {
    // No downloads of helper programs, no checks for new versions.
    process.env['PI_OFFLINE'] = '1'
    const session = await openSession(settings)
    const { provider, id } = settings.model
    return {
      sessionId: session.sessionId,
      tools: session.getActiveToolNames(),
      model: provider === 'demo' ? 'demo' : `${provider}/${id}`,
      run: (turn, emit, signal) => new PiTurn(session, settings, emit, signal).run(turn),
      async close() {
        await session.abort()
        session.dispose()
      },
    }
  },
}

async function openSession(settings: HarnessSettings): Promise<AgentSession> {
  const { cwd, gateway } = settings
  const agentDir = join(settings.stateDir, 'pi')
  mkdirSync(agentDir, { recursive: true })
  const conversation = join(agentDir, 'conversation.jsonl')
  dropTornLine(conversation)

  const authStorage = AuthStorage.inMemory()
  authStorage.setRuntimeApiKey(settings.model.provider, gateway.token)
  const settingsManager = SettingsManager.inMemory({
    // The gateway tries again what may pass; PiTurn takes up answers that broke off. Nobody else shall.
    retry: { enabled: false, provider: { maxRetries: 0 } },
    enableInstallTelemetry: false,
  })
  const resourceLoader = new DefaultResourceLoader({
    cwd,
    agentDir,
    settingsManager,
    noExtensions: true,
    noSkills: true,
    noPromptTemplates: true,
    noThemes: true,
    additionalSkillPaths: skillPaths(settings.skillsDir, settings.skillFiles ?? []),
    // Not `appendSystemPrompt`: that one takes a text which is the path of a file for the file.
    appendSystemPromptOverride: () => (settings.systemPrompt ? [surroundings, settings.systemPrompt] : [surroundings]),
  })
  await resourceLoader.reload()
  const { session } = await createAgentSession({
    cwd,
    agentDir,
    authStorage,
    modelRegistry: ModelRegistry.inMemory(authStorage),
    model: piModel(settings, authStorage),
    resourceLoader,
    settingsManager,
    sessionManager: SessionManager.open(conversation, agentDir, cwd),
    tools: allowedToolNames(settings.allowedTools),
    customTools: ownTools(cwd),
  })
  return session
}

/** A kill in the middle of a write leaves half a line, to which pi would glue the next one and lose both. */
function dropTornLine(path: string): void {
  let content: Buffer
  try {
    content = readFileSync(path)
  } catch {
    return
  }
  const end = content.lastIndexOf(10) + 1
  if (end < content.length) truncateSync(path, end)
}
