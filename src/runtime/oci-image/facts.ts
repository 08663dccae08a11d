import { z } from 'zod'
import { defined } from '../../lib/defined.ts'
import type { Healthcheck, ImageFacts } from '../../sandbox/ports/runtime-driver.ts'

const words = z.array(z.string()).nullish()
/** The keys are the set. */
const set = z.record(z.string(), z.unknown()).nullish()
const duration = z.number().nullish()

/** What the configuration of an image has beside what commands get: the OCI image specification, and Docker's HEALTHCHECK and SHELL. */
export const containerFacts = {
  Labels: z.record(z.string(), z.string()).nullish(),
  ExposedPorts: set,
  Volumes: set,
  StopSignal: z.string().nullish(),
  Healthcheck: z
    .object({
      Test: words,
      Interval: duration,
      Timeout: duration,
      StartPeriod: duration,
      StartInterval: duration,
      Retries: z.number().nullish(),
    })
    .nullish(),
  Shell: words,
}

type ContainerFacts = z.output<z.ZodObject<typeof containerFacts>>

const portPattern = /^\d{1,5}(?:-\d{1,5})?(?:\/(?:tcp|udp|sctp))?$/i
const signalPattern = /^[A-Za-z0-9+-]{1,32}$/
const tests = ['NONE', 'CMD', 'CMD-SHELL']
const retriesMax = 1_000_000

/** All texts by what they are. The caller bounds them. */
export function textsOf({ Labels, ExposedPorts, Volumes, StopSignal, Healthcheck: check, Shell }: ContainerFacts) {
  return {
    labels: Object.entries(Labels ?? {}).map(([name, value]) => name + value),
    ports: Object.keys(ExposedPorts ?? {}),
    volumes: Object.keys(Volumes ?? {}),
    'words in its STOPSIGNAL, SHELL and HEALTHCHECK': [StopSignal ?? '', ...(Shell ?? []), ...(check?.Test ?? [])],
  }
}

/** What has no meaning, such as a port that is no number, is left out, as nothing is done with it. */
export function factsOf({
  Labels,
  ExposedPorts,
  Volumes,
  StopSignal,
  Healthcheck: check,
  Shell,
}: ContainerFacts): ImageFacts {
  const ports = Object.keys(ExposedPorts ?? {}).filter((port) => portPattern.test(port))
  const volumes = Object.keys(Volumes ?? {}).filter((path) => path !== '')
  return defined({
    labels: Labels && Object.keys(Labels).length > 0 ? Labels : undefined,
    exposedPorts: nonEmpty(ports.map((port) => (port.includes('/') ? port.toLowerCase() : `${port}/tcp`))),
    volumes: nonEmpty(volumes),
    stopSignal: StopSignal && signalPattern.test(StopSignal) ? StopSignal : undefined,
    healthcheck: check ? healthcheckOf(check) : undefined,
    shell: nonEmpty(Shell ?? []),
  })
}

function healthcheckOf({
  Test,
  Interval,
  Timeout,
  StartPeriod,
  StartInterval,
  Retries,
}: NonNullable<ContainerFacts['Healthcheck']>): Healthcheck | undefined {
  if (!Test || !tests.includes(Test[0] ?? '')) return undefined
  const isCount = Retries && Number.isInteger(Retries) && Retries > 0 && Retries <= retriesMax
  return {
    test: Test,
    ...defined({
      intervalMs: millisecondsOf(Interval),
      timeoutMs: millisecondsOf(Timeout),
      startPeriodMs: millisecondsOf(StartPeriod),
      startIntervalMs: millisecondsOf(StartInterval),
      retries: isCount ? Retries : undefined,
    }),
  }
}

/** Of nanoseconds. Zero is Docker's default. */
function millisecondsOf(nanoseconds: number | null | undefined): number | undefined {
  const ms = Math.round((nanoseconds ?? 0) / 1_000_000)
  return ms > 0 && ms <= Number.MAX_SAFE_INTEGER ? ms : undefined
}

function nonEmpty(list: readonly string[]): readonly string[] | undefined {
  return list.length === 0 ? undefined : list
}
