/** Checks of the container engines: runc, and those that Atoll can use instead of it or beside it. */
import { access, chmod, constants, mkdir, realpath, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { run } from '../command.ts'
import { fails, missing, runSetup, versionText, works, type HostCheck } from './check.ts'
import { openScratch, trialConfig } from './scratch.ts'

/**
 * KVM_CREATE_VM, KVM_CREATE_VCPU, KVM_SET_TSS_ADDR, KVM_RUN (linux/kvm.h). The device also exists on hosts, such as nested ones,
 * that cannot run a machine; only the last call shows it. An ARM machine needs a description before it runs, so there the
 * second call decides.
 */
const kvmAttempt = `
  open(my $kvm, "+<", "/dev/kvm") or die "/dev/kvm: $!\\n";
  my $vm = ioctl($kvm, 0xAE01, 0) or die "cannot make a machine: $!\\n";
  open(my $machine, "+<&=", $vm) or die "$!\\n";
  my $cpu = ioctl($machine, 0xAE41, 0) or die "cannot make a processor: $!\\n";
  exit 0 if ${process.arch === 'x64' ? 0 : 1};
  open(my $processor, "+<&=", $cpu) or die "$!\\n";
  ioctl($machine, 0xAE47, 0xfffbd000);
  ioctl($processor, 0xAE80, 0) or die "cannot run a machine: $!\\n";
`

/** Starts a container on the base image in namespaces of its own, like a sandbox. */
export const runcCheck: HostCheck = {
  name: 'runc',
  required: true,
  async run({ imageDir }) {
    const version = await versionText('runc', '--version')
    if (version === undefined) return missing('no runc', runSetup)
    const number = /^runc version (\S+)/m.exec(version)?.[1] ?? 'unknown version'
    const image = await realpath(join(imageDir, 'base', 'rootfs')).catch(() => undefined)
    if (image === undefined) return fails(`${number}; no base image to try it with`, runSetup)
    const inside = await startContainer(image)
    if (inside !== 'uid 0') return fails(`${number}; the container said ${JSON.stringify(inside)}`)
    return works(`${number}; a container with a user namespace started`)
  },
}

/** Nothing fails without these. */
export const optionalChecks: HostCheck[] = [
  optional('OCI images', async ({ imageDir }) => {
    const version = await versionText('skopeo', '--version')
    if (version === undefined) return missing('no skopeo: only archives can be imported', runSetup)
    const image = await realpath(join(imageDir, 'scratch')).catch(() => undefined)
    if (image === undefined) return missing('no empty image to put them on', runSetup)
    return works(`${version.trim()}; ${basename(image)}`)
  }),
  engine('gVisor (runsc)', ['runsc', '--version'], (version) => version.split('\n')[0] ?? ''),
  optional('KVM', async () => {
    const device = '/dev/kvm'
    try {
      await access(device, constants.R_OK | constants.W_OK)
    } catch {
      return missing(`no usable ${device}`)
    }
    await run(['perl', '-e', kvmAttempt])
    return works(`${device}; a machine ran`)
  }),
  engine('Incus', ['incus', 'version'], (version) => version.trim().replaceAll('\n', ', ')),
]

function optional(name: string, check: HostCheck['run']): HostCheck {
  return { name, required: false, run: check }
}

function engine(name: string, argv: [string, ...string[]], shown: (version: string) => string): HostCheck {
  return optional(name, async () => {
    const version = await versionText(...argv)
    return version === undefined ? missing('not found') : works(shown(version))
  })
}

async function startContainer(image: string): Promise<string> {
  await using scratch = await openScratch()
  // Root in the container is an unprivileged user on the host and must reach its bundle.
  await chmod(scratch.path, 0o711)
  // The folders above the image may be closed, and runc refuses a root behind a symbolic link.
  const root = join(scratch.path, 'rootfs')
  await mkdir(root)
  scratch.defer(['umount', '--lazy', root])
  await run(['mount', '-o', 'bind,ro', image, root])
  const id = `atoll-doctor-${process.pid}`
  const argv = ['/bin/sh', '-c', 'echo uid $(id -u)'] as const
  const config = trialConfig({ root, hostname: 'doctor', cgroup: `/${id}`, argv })
  await writeFile(join(scratch.path, 'config.json'), JSON.stringify(config))
  const state = join(scratch.path, 'state')
  scratch.defer(['runc', '--root', state, 'delete', '--force', id])
  return (await run(['runc', '--root', state, 'run', '--bundle', scratch.path, id])).trim()
}
