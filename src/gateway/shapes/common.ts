import { dear, plain, type Fields, type Shape } from './shape.ts'

/** Outermost fields of all wires whose values `request-rules.ts` and `model-request.ts` restrict. */
export const ruledFields: Fields = {
  model: plain,
  stream: plain,
  service_tier: plain,
  speed: plain,
  inference_geo: plain,
  n: plain,
  best_of: plain,
  modalities: { plain: true, list: plain },
}

/** Further models would bypass the list of the session's models. */
const otherModels: Shape = { onlyEmpty: 'only one model may be named' }

/** Outermost fields that clients may send empty. Most belong to routers in front of several model APIs. */
export const emptyFields: Fields = {
  anthropic_beta: dear,
  audio: dear,
  background: dear,
  betas: dear,
  container: dear,
  context_window_fallback_dict: dear,
  data_sources: dear,
  deferred: dear,
  enable_search: dear,
  extra_body: dear,
  fallbacks: otherModels,
  mcp_servers: dear,
  models: otherModels,
  plugins: dear,
  preset: dear,
  provider: dear,
  providerOptions: dear,
  search_parameters: dear,
  web_search_options: dear,
}
