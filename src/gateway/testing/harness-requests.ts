import { completions, messages, responses } from './gateway-setup.ts'

/** Bodies as the harnesses send them: those of pi and Qwen Code were recorded, the others follow the sources and records of their users. */
export interface HarnessRequest {
  harness: string
  path: string
  /** The header `anthropic-beta`. */
  betas?: string
  body: Record<string, unknown>
  /** What is cut out of it, by the path of its field: `input[].id`. */
  cut?: readonly string[]
}

const schema = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] }
const hour = { type: 'ephemeral', ttl: '1h' }
const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aGk=' } }
const dataUrl = 'data:image/png;base64,aGk='
const chatCall = { id: 'call_1', type: 'function', function: { name: 'bash', arguments: '{"command":"ls"}' } }

export const harnessRequests: readonly HarnessRequest[] = [
  {
    harness: 'pi',
    path: messages,
    betas: 'interleaved-thinking-2025-05-14',
    body: {
      model: 'm-1',
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'Look' }, image] },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'hm', signature: 'c2ln' },
            { type: 'redacted_thinking', data: 'c2ln' },
            { type: 'text', text: 'I will.' },
            { type: 'tool_use', id: 'call_1', name: 'bash', input: { command: 'ls', file_id: 'an argument' } },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'call_1',
              content: [{ type: 'text', text: 'a' }, image],
              is_error: false,
            },
          ],
        },
        { role: 'user', content: [{ type: 'text', text: 'Go on', cache_control: hour }] },
      ],
      max_tokens: 1000,
      stream: true,
      system: [{ type: 'text', text: 'Be good.', cache_control: hour }],
      tools: [
        { name: 'bash', description: 'Runs', eager_input_streaming: true, input_schema: schema, cache_control: hour },
      ],
      thinking: { type: 'enabled', budget_tokens: 1024, display: 'summarized' },
    },
  },
  {
    harness: 'pi',
    path: completions,
    body: {
      model: 'm-1',
      messages: [
        { role: 'developer', content: 'Be good.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look' },
            { type: 'image_url', image_url: { url: dataUrl } },
          ],
        },
        { role: 'assistant', content: 'I will.', reasoning_content: 'hm', tool_calls: [chatCall] },
        { role: 'tool', content: 'a', tool_call_id: 'call_1' },
        { role: 'user', content: 'Go on' },
      ],
      stream: true,
      prompt_cache_key: 's1',
      prompt_cache_retention: '24h',
      stream_options: { include_usage: true },
      store: false,
      max_completion_tokens: 1000,
      tools: [{ type: 'function', function: { name: 'bash', description: 'Runs', parameters: schema, strict: false } }],
      reasoning_effort: 'high',
    },
  },
  {
    harness: 'pi',
    path: responses,
    cut: ['input[].id'],
    body: {
      model: 'm-1',
      input: [
        { role: 'developer', content: 'Be good.' },
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'Look' },
            { type: 'input_image', detail: 'auto', image_url: dataUrl },
          ],
        },
        {
          type: 'reasoning',
          id: 'rs_1',
          summary: [{ type: 'summary_text', text: 'hm' }],
          encrypted_content: 'gAAA',
        },
        {
          type: 'message',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'I will.', annotations: [] }],
          status: 'completed',
          id: 'msg_abc',
        },
        { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'bash', arguments: '{"command":"ls"}' },
        {
          type: 'function_call_output',
          call_id: 'call_1',
          output: [
            { type: 'input_text', text: 'a' },
            { type: 'input_image', detail: 'auto', image_url: dataUrl },
          ],
        },
        { role: 'user', content: [{ type: 'input_text', text: 'Go on' }] },
      ],
      stream: true,
      prompt_cache_key: 's1',
      prompt_cache_retention: '24h',
      store: false,
      max_output_tokens: 1000,
      tools: [{ type: 'function', name: 'bash', description: 'Runs', parameters: schema, strict: false }],
      reasoning: { effort: 'high', summary: 'auto' },
      include: ['reasoning.encrypted_content'],
    },
  },
  {
    harness: 'qwen',
    path: completions,
    body: {
      model: 'm-1',
      messages: [
        { role: 'system', content: 'Be good.' },
        { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
        { role: 'assistant', content: 'ok', tool_calls: [chatCall], reasoning_content: 'hm' },
        { role: 'tool', tool_call_id: 'call_1', content: [{ type: 'text', text: 'hi' }] },
      ],
      max_tokens: 32_000,
      stream: true,
      stream_options: { include_usage: true },
      tools: [{ type: 'function', function: { name: 'bash', description: 'Runs', parameters: schema } }],
    },
  },
  {
    harness: 'claude',
    path: messages,
    betas: [
      'claude-code-20250219,interleaved-thinking-2025-05-14,thinking-token-count-2026-05-13',
      'context-management-2025-06-27,prompt-caching-scope-2026-01-05,mid-conversation-system-2026-04-07',
      'advanced-tool-use-2025-11-20,effort-2025-11-24,extended-cache-ttl-2025-04-11',
    ].join(),
    cut: ['diagnostics'],
    body: {
      model: 'm-1',
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'Hi', cache_control: { type: 'ephemeral' } }] },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: '', signature: 'c2ln' },
            { type: 'tool_use', id: 'toolu_1', name: 'ToolSearch', input: { query: 'x' }, caller: { type: 'direct' } },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'toolu_1',
              content: [{ type: 'tool_reference', tool_name: 'mcp__x__y' }],
            },
            { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'aGk=' } },
          ],
        },
        { role: 'system', content: 'A reminder.' },
      ],
      system: [
        { type: 'text', text: 'You are Claude Code.' },
        { type: 'text', text: 'Rules.', cache_control: { type: 'ephemeral', ttl: '1h', scope: 'global' } },
      ],
      tools: [
        { name: 'Bash', description: 'Runs', input_schema: schema, eager_input_streaming: true },
        { name: 'mcp__x__y', description: 'Does', input_schema: schema, defer_loading: true, strict: true },
      ],
      diagnostics: { previous_message_id: 'msg_1' },
      metadata: { user_id: 'user_1' },
      max_tokens: 32_000,
      thinking: { type: 'adaptive', display: 'omitted' },
      output_config: { effort: 'high' },
      context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
      temperature: 1,
      stream: true,
    },
  },
  {
    harness: 'codex',
    path: responses,
    cut: ['input[].internal_chat_message_metadata_passthrough'],
    body: {
      model: 'm-1',
      instructions: 'Be good.',
      input: [
        {
          type: 'message',
          role: 'user',
          content: [{ type: 'input_text', text: 'Hi' }],
          internal_chat_message_metadata_passthrough: { turn_id: 't1' },
        },
        { type: 'reasoning', summary: [], content: null, encrypted_content: 'gAAA' },
        {
          type: 'message',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'I will.' }],
          phase: 'commentary',
        },
        { type: 'function_call', name: 'shell', arguments: '{}', call_id: 'call_1' },
        { type: 'function_call_output', call_id: 'call_1', output: 'hi' },
        { type: 'custom_tool_call', status: 'completed', call_id: 'call_2', name: 'apply_patch', input: '*** Begin' },
        { type: 'custom_tool_call_output', call_id: 'call_2', output: 'done' },
        {
          type: 'local_shell_call',
          call_id: 'call_3',
          status: 'completed',
          action: { type: 'exec', command: ['ls'], timeout_ms: 1, working_directory: '/', env: { A: 'b' }, user: null },
        },
        { type: 'compaction', encrypted_content: 'gAAA' },
      ],
      tools: [
        { type: 'function', name: 'shell', description: 'Runs', strict: false, parameters: schema },
        {
          type: 'custom',
          name: 'apply_patch',
          description: 'Patches',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: x' },
        },
        { type: 'local_shell' },
      ],
      tool_choice: 'auto',
      parallel_tool_calls: true,
      reasoning: { effort: 'medium', summary: 'auto' },
      store: false,
      stream: true,
      include: ['reasoning.encrypted_content'],
      prompt_cache_key: 'conversation',
      text: { verbosity: 'low', format: { type: 'json_schema', strict: true, schema, name: 'codex_output_schema' } },
      client_metadata: { session: 's1' },
    },
  },
]
