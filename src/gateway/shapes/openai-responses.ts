import { emptyFields, ruledFields } from './common.ts'
import {
  address,
  cut,
  forcedFalse,
  free,
  kept,
  list,
  mapOf,
  object,
  plain,
  union,
  type Fields,
  type Shape,
} from './shape.ts'

// After the request types of OpenAI's SDK and what Codex sends. Left out: whatever has an id of a file, a container, a conversation or a
// stored prompt, references to items, and all tools that run at the API, with their calls and results.

const image: Fields = { image_url: address, detail: plain, file_id: kept }
const part = union({
  input_text: { text: plain },
  output_text: {
    text: plain,
    annotations: list(
      union({ url_citation: { start_index: plain, end_index: plain, index: plain, title: plain, url: plain } }),
    ),
    logprobs: cut,
  },
  text: { text: plain },
  refusal: { refusal: plain },
  reasoning_text: { text: plain },
  input_image: image,
  input_file: { filename: plain, file_data: plain, file_url: address, detail: plain, file_id: kept },
  // What a client's computer shows.
  computer_screenshot: image,
})
const parts: Shape = { plain: true, list: part }

/**
 * The API resolves an item's id by what the account keeps: an id without its content would give the content of another session. An item
 * with its content needs no id. Encrypted reasoning is served without an id as well; with one, it must have the same one inside.
 */
const item: Fields = {
  id: cut,
  status: plain,
  created_by: cut,
  internal_chat_message_metadata_passthrough: cut,
}
/** Of a shell or of a computer. */
const action = object({
  type: plain,
  command: list(plain),
  env: mapOf(plain),
  timeout_ms: plain,
  user: plain,
  working_directory: plain,
  button: plain,
  x: plain,
  y: plain,
  path: list(object({ x: plain, y: plain })),
  keys: list(plain),
  scroll_x: plain,
  scroll_y: plain,
  text: plain,
})
const safetyChecks = list(object({ id: plain, code: plain, message: plain }))
const message: Fields = { ...item, role: plain, content: parts, phase: plain }
/** The call of a tool, and what the client answers. */
const call: Fields = { ...item, call_id: plain }
const output: Shape = { ...parts, ...part }

const inputItem = union(
  {
    message,
    reasoning: {
      ...item,
      summary: list(object({ type: plain, text: plain })),
      content: parts,
      encrypted_content: plain,
    },
    compaction: { ...item, encrypted_content: plain },
    compaction_summary: { ...item, encrypted_content: plain },
    context_compaction: { ...item, encrypted_content: plain },
    function_call: { ...call, name: plain, namespace: plain, arguments: plain },
    function_call_output: { ...call, output },
    custom_tool_call: { ...call, name: plain, namespace: plain, input: plain },
    custom_tool_call_output: { ...call, name: plain, output },
    local_shell_call: { ...call, action },
    local_shell_call_output: { ...call, output },
    apply_patch_call: { ...call, operation: object({ type: plain, path: plain, diff: plain }) },
    apply_patch_call_output: { ...call, output },
    computer_call: { ...call, action, actions: list(action), pending_safety_checks: safetyChecks },
    computer_call_output: { ...call, output, acknowledged_safety_checks: safetyChecks },
  },
  {
    untyped: message,
    untypedNeeds: 'role',
    fault: 'must be an item of the conversation: references to stored items and tools of the model API are not served',
  },
)

const toolFault = 'must be a tool that the client runs: the cost of others is not reported in tokens'
const namedTool: Readonly<Record<string, Fields>> = {
  function: { name: plain },
  custom: { name: plain },
  local_shell: {},
  apply_patch: {},
  computer: {},
  computer_use_preview: {},
}
const tool = union(
  {
    ...namedTool,
    function: { name: plain, description: plain, parameters: free, strict: plain, defer_loading: plain },
    custom: {
      name: plain,
      description: plain,
      format: union({ text: {}, grammar: { syntax: plain, definition: plain } }),
      defer_loading: plain,
    },
    computer_use_preview: { display_width: plain, display_height: plain, environment: plain },
  },
  { fault: toolFault },
)

export const openaiResponses: Shape = object({
  ...emptyFields,
  ...ruledFields,
  input: { plain: true, list: inputItem },
  instructions: plain,
  tools: list(tool),
  tool_choice: {
    plain: true,
    ...union(
      { ...namedTool, allowed_tools: { mode: plain, tools: list(union(namedTool, { fault: toolFault })) } },
      { fault: toolFault },
    ),
  },
  parallel_tool_calls: plain,
  max_output_tokens: plain,
  max_tool_calls: plain,
  temperature: plain,
  top_p: plain,
  top_logprobs: plain,
  reasoning: object({ effort: plain, summary: plain, generate_summary: plain }),
  text: object({
    verbosity: plain,
    format: union({
      text: {},
      json_object: {},
      json_schema: { name: plain, description: plain, schema: free, strict: plain },
    }),
  }),
  include: list(plain),
  truncation: plain,
  stream_options: object({ include_obfuscation: plain, include_usage: plain }),
  metadata: mapOf(plain),
  client_metadata: mapOf(plain),
  user: plain,
  safety_identifier: plain,
  prompt_cache_key: plain,
  prompt_cache_retention: plain,
  store: forcedFalse,
  conversation: kept,
  previous_response_id: kept,
  prompt: kept,
})
