import type { AgentEvent } from '../../../sdk/src/index.ts'

/** What an event tells a person: words of the agent, or a fact beside them. */
export interface Told {
  words?: string
  fact?: string
}

export function toldBy(event: AgentEvent): Told {
  switch (event.type) {
    case 'assistant': {
      const words = event.message.content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n')
      return words === '' ? {} : { words }
    }
    case 'tool_use_summary':
      return { fact: event.is_error ? `${event.summary} (failed)` : event.summary }
    case 'error':
      return { fact: `error: ${event.message}` }
    case 'result':
      return event.subtype === 'success' ? {} : { fact: ends[event.subtype] }
    case 'ready':
      return { fact: `The agent starts (${event.harness}).` }
    case 'configured':
      return { fact: `The agent is ready with model ${event.model}.` }
    case 'rewound':
      return { fact: `The session has gone to event ${event.to_event} (${whatWords[event.what]}).` }
    case 'capsule_created':
      return { fact: `A link shows the turn that failed: ${event.url}` }
    case 'turn_complete':
    case 'checkpoint_created':
    default:
      return {}
  }
}

const whatWords = { all: 'all of it', machine: 'files and processes', conversation: 'what was said' } as const

export const ends = {
  error_max_turns: 'the turn ended at its bound of calls of the model',
  error_during_execution: 'the turn failed',
  interrupted: 'the turn was interrupted',
} as const
