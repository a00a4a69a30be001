#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sched.h>
#include <unistd.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <arpa/inet.h>
/* fill the buffer with datagrams, then time the reads only: ns per read */
static double now(void){struct timespec t;clock_gettime(CLOCK_THREAD_CPUTIME_ID,&t);return t.tv_sec*1e9+t.tv_nsec;}
int main(int c,char**v){
 int mode=atoi(v[1]); int cpu=atoi(v[2]); int rounds=atoi(v[3]);
 cpu_set_t s;CPU_ZERO(&s);CPU_SET(cpu,&s);sched_setaffinity(0,sizeof s,&s);
 int r=socket(AF_INET,SOCK_DGRAM,0),w=socket(AF_INET,SOCK_DGRAM,0);
 int b=8<<20;setsockopt(r,SOL_SOCKET,SO_RCVBUFFORCE,&b,sizeof b);
 struct sockaddr_in a={.sin_family=AF_INET,.sin_port=htons(4321),.sin_addr.s_addr=htonl(0x7f000001)};
 bind(r,(void*)&a,sizeof a);connect(w,(void*)&a,sizeof a);
 char buf[64][2048];struct mmsghdr m[64];struct iovec io[64];
 for(int i=0;i<64;i++){io[i]=(struct iovec){buf[i],mode==2?50:2048};m[i]=(struct mmsghdr){.msg_hdr={.msg_iov=&io[i],.msg_iovlen=1}};}
 double tot=0;long n=0;
 for(int k=0;k<rounds;k++){
  for(int i=0;i<1024;i++)send(w,buf[0],100,0);
  double t=now();
  if(mode==0)for(int i=0;i<1024;i++)recv(r,buf[0],2048,0);
  else if(mode==2)for(int i=0;i<1024;i++)recv(r,buf[0],50,0);
  else for(int i=0;i<1024;){int g=recvmmsg(r,m,64,MSG_DONTWAIT,0);if(g<=0)break;i+=g;}
  tot+=now()-t;n+=1024;
 }
 printf("%.1f\n",tot/n);
}
