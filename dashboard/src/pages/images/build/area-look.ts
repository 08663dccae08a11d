/** Of a field of several lines. */
export const areaLook =
  'w-full min-w-0 rounded-md border bg-paper px-2.5 py-1.5 font-mono text-[13px] placeholder:text-soft'
