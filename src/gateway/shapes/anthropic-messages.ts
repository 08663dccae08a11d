import { emptyFields, ruledFields } from './common.ts'
import { address, cut, free, kept, list, object, plain, union, type Fields, type Shape } from './shape.ts'

// After the request types of Anthropic's SDK, with what Claude Code sends beyond them. Left out: whatever has an id of a file, a container,
// a skill or a profile, and all tools that run at the API, with their calls and results.

const cacheControl = object({ type: plain, ttl: plain, scope: plain })
/** Of a tool result too, so that one shape is enough: the API itself refuses other blocks there. */
const citations: Shape = {
  list: union({
    char_location: location('start_char_index', 'end_char_index'),
    page_location: location('start_page_number', 'end_page_number'),
    content_block_location: location('start_block_index', 'end_block_index'),
    search_result_location: {
      ...location('start_block_index', 'end_block_index'),
      search_result_index: plain,
      source: plain,
      title: plain,
    },
  }),
  object: { fields: new Map([['enabled', plain]]) },
}
const text: Fields = { text: plain, citations, cache_control: cacheControl }
const imageSource: Shape = union({
  base64: { media_type: plain, data: plain },
  url: { url: address },
})
const image: Fields = { source: imageSource, cache_control: cacheControl }

const source: Shape = {
  ...union({
    base64: { media_type: plain, data: plain },
    text: { media_type: plain, data: plain },
    url: { url: address },
    content: { content: { plain: true, list: union({ text, image }) } },
  }),
  // Of a search result.
  plain: true,
}
const document: Fields = { source, cache_control: cacheControl, citations, context: plain, title: plain }
const documents: Readonly<Record<string, Fields>> = { text, image: { ...image, source }, document }
const searchResult = (content: Shape): Fields => ({
  source,
  title: plain,
  content,
  citations,
  cache_control: cacheControl,
})
const toolResultBlocks = list(
  union({
    ...documents,
    search_result: searchResult(list(union({ text }))),
    tool_reference: { tool_name: plain, cache_control: cacheControl },
  }),
)
const blockContent: Shape = { plain: true, ...toolResultBlocks }

const block = union({
  ...documents,
  search_result: searchResult(blockContent),
  thinking: { thinking: plain, signature: plain, cache_control: cacheControl },
  redacted_thinking: { data: plain },
  tool_use: {
    id: plain,
    name: plain,
    input: free,
    caller: union({ direct: {} }),
    cache_control: cacheControl,
  },
  tool_result: { tool_use_id: plain, content: blockContent, is_error: plain, cache_control: cacheControl },
  compaction: { content: blockContent, encrypted_content: plain, cache_control: cacheControl },
})

const anyTool: Fields = {
  name: plain,
  description: plain,
  input_schema: free,
  input_examples: list(free),
  cache_control: cacheControl,
  strict: plain,
  eager_input_streaming: plain,
  defer_loading: plain,
  allowed_callers: list(plain),
}
const tool = union(
  { custom: anyTool },
  {
    untyped: anyTool,
    patterns: [
      [
        /^(bash|text_editor|computer|memory)_\d{8}$/,
        {
          ...anyTool,
          display_width_px: plain,
          display_height_px: plain,
          display_number: plain,
          enable_zoom: plain,
          max_characters: plain,
        },
      ],
    ],
    fault: 'must be a tool that the client runs: the cost of others is not reported in tokens',
  },
)

const amount = object({ type: plain, value: plain })
const contextEdit = union({
  clear_tool_uses_20250919: {
    clear_at_least: amount,
    clear_tool_inputs: { plain: true, list: plain },
    exclude_tools: list(plain),
    keep: { plain: true, ...amount },
    trigger: amount,
  },
  clear_thinking_20251015: { keep: { plain: true, ...amount } },
  // What it writes is in the reported usage.
  compact_20260112: { instructions: plain, pause_after_compaction: plain, trigger: amount },
})

export const anthropicMessages: Shape = object({
  ...emptyFields,
  ...ruledFields,
  messages: list(object({ role: plain, content: { plain: true, list: block } })),
  system: { plain: true, list: union({ text }) },
  tools: list(tool),
  tool_choice: object({ type: plain, name: plain, disable_parallel_tool_use: plain }),
  max_tokens: plain,
  metadata: object({ user_id: plain }),
  stop_sequences: list(plain),
  temperature: plain,
  top_k: plain,
  top_p: plain,
  thinking: object({ type: plain, budget_tokens: plain, display: plain }),
  output_config: object({
    effort: plain,
    format: object({ type: plain, schema: free }),
    task_budget: object({ type: plain, total: plain, remaining: plain }),
  }),
  output_format: object({ type: plain, schema: free }),
  context_management: object({ edits: list(contextEdit) }),
  cache_control: cacheControl,
  container: kept,
  user_profile_id: kept,
  // Compares with an earlier answer, by its id. Claude Code sends it and needs no answer.
  diagnostics: cut,
})

function location(start: string, end: string): Fields {
  return { cited_text: plain, document_index: plain, document_title: plain, [start]: plain, [end]: plain }
}
