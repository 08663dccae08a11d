import { emptyFields, ruledFields } from './common.ts'
import {
  address,
  dear,
  forcedFalse,
  free,
  kept,
  list,
  mapOf,
  object,
  plain,
  union,
  unused,
  type Fields,
  type Shape,
} from './shape.ts'

// After the request types of OpenAI's SDK, with what compatible servers add for sampling and reasoning, as far as clients send it. Left
// out: audio and video, which have prices of their own, and whatever has an id of a file or of earlier audio.

const cacheControl = object({ type: plain, ttl: plain })
const part = union({
  text: { text: plain, cache_control: cacheControl },
  image_url: {
    image_url: { ...address, ...object({ url: address, detail: plain }) },
    cache_control: cacheControl,
  },
  refusal: { refusal: plain },
  file: { file: object({ filename: plain, file_data: plain, file_id: kept }), cache_control: cacheControl },
})
const content: Shape = { plain: true, list: part }

const toolFault = 'must be a tool that the client runs: the cost of others is not reported in tokens'
const callFields: Fields = {
  id: plain,
  index: plain,
  // Gemini's reasoning, encrypted.
  extra_content: object({ google: object({ thought_signature: plain }) }),
}
const functionCall: Fields = { ...callFields, function: object({ name: plain, arguments: plain }) }
const toolCall = union(
  { function: functionCall, custom: { ...callFields, custom: object({ name: plain, input: plain }) } },
  { untyped: functionCall, fault: toolFault },
)

/** Reasoning that the model wrote itself. */
const reasoningDetail = object({
  type: plain,
  id: plain,
  format: plain,
  index: plain,
  text: plain,
  summary: plain,
  data: plain,
  signature: plain,
})

const message = object({
  role: plain,
  content,
  name: plain,
  tool_calls: list(toolCall),
  tool_call_id: plain,
  function_call: object({ name: plain, arguments: plain }),
  refusal: plain,
  annotations: unused,
  audio: dear,
  reasoning: plain,
  reasoning_content: plain,
  reasoning_text: plain,
  reasoning_details: list(reasoningDetail),
  cache_control: cacheControl,
  prefix: plain,
  partial: plain,
})

const grammar = object({ syntax: plain, definition: plain })
const tool = union(
  {
    function: {
      function: object({ name: plain, description: plain, parameters: free, strict: plain }),
      cache_control: cacheControl,
    },
    custom: {
      custom: object({ name: plain, description: plain, format: union({ text: {}, grammar: { grammar } }) }),
      cache_control: cacheControl,
    },
  },
  { fault: toolFault },
)

const named = object({ name: plain })
const namedTool = union({ function: { function: named }, custom: { custom: named } }, { fault: toolFault })
const toolChoice = union(
  {
    function: { function: named },
    custom: { custom: named },
    allowed_tools: { allowed_tools: object({ mode: plain, tools: list(namedTool) }) },
  },
  { fault: toolFault },
)

export const openaiCompletions: Shape = object({
  ...emptyFields,
  ...ruledFields,
  messages: list(message),
  tools: list(tool),
  tool_choice: { plain: true, ...toolChoice },
  functions: list(object({ name: plain, description: plain, parameters: free })),
  function_call: { plain: true, ...named },
  max_tokens: plain,
  max_completion_tokens: plain,
  temperature: plain,
  top_p: plain,
  frequency_penalty: plain,
  presence_penalty: plain,
  seed: plain,
  stop: { plain: true, list: plain },
  logit_bias: mapOf(plain),
  logprobs: plain,
  top_logprobs: plain,
  parallel_tool_calls: plain,
  response_format: union({
    text: {},
    json_object: {},
    json_schema: { json_schema: object({ name: plain, description: plain, schema: free, strict: plain }) },
  }),
  prediction: object({ type: plain, content }),
  reasoning_effort: plain,
  verbosity: plain,
  stream_options: {
    plain: true,
    ...object({ include_usage: plain, include_obfuscation: plain, continuous_usage_stats: plain }),
  },
  metadata: mapOf(plain),
  user: plain,
  safety_identifier: plain,
  prompt_cache_key: plain,
  prompt_cache_retention: plain,
  store: forcedFalse,
  // Of compatible servers.
  top_k: plain,
  top_a: plain,
  min_p: plain,
  repetition_penalty: plain,
  enable_thinking: plain,
  preserve_thinking: plain,
  thinking_budget: plain,
  thinking: object({ type: plain, budget_tokens: plain, clear_thinking: plain }),
  chat_template_kwargs: mapOf(plain),
  reasoning: object({ effort: plain, enabled: plain, exclude: plain, max_tokens: plain, summary: plain }),
  include_reasoning: plain,
  tool_stream: plain,
  vl_high_resolution_images: plain,
  usage: object({ include: plain }),
})
