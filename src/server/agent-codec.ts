import { agentEnvironment, agentLineBytesMax, encodeAgentLine, parseAgentEvent } from '../protocol/agent.ts'
import { LineSplitter } from '../protocol/line-splitter.ts'
import type { AgentCodec } from '../session/index.ts'

/** The line protocol of `protocol/agent.ts` behind the port that `session/` asks for. */
export const agentCodec: AgentCodec = {
  environment: agentEnvironment,
  lineBytesMax: agentLineBytesMax,
  encode: encodeAgentLine,
  parse: parseAgentEvent,
  splitter: () => new LineSplitter(),
}
